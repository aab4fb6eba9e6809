"""The JSON view: the profile itself, as it is saved and loaded."""

from __future__ import annotations

from opgraph.record.profile import Profile


def to_json(profile: Profile) -> str:
    """The profile as JSON text."""
    return profile.to_json()
