"""The rules by which arguments are made: importing this module fills the table.

A rule is a function from a `Context` to the value of an argument, entered with `@rule("name", …)` under the
names that `forward` gives it. It stands in the file of its subject; a new subject is one file here and one
entry below. Rules never see the model's name.
"""

from opgraph.inputs.context import RULES, Rule, rule
from opgraph.inputs.rules import audio, images, structured, text

__all__ = ["RULES", "Rule", "audio", "images", "rule", "structured", "text"]
