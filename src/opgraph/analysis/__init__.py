"""What can be said of a graph without torch: functions of records, room by room.

`cost` what it costs, `fusion` what goes together, `timing` how long, `memory` how much at a time,
`scaling` at other sizes, `compare` what changed, `parallel` over several devices, `serving` as it
generates, `check` whether tracers agree."""
