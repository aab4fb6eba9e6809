"""All the rules: importing this module fills the table."""

from opgraph.inputs.context import RULES, Rule, rule
from opgraph.inputs.rules import audio, images, latents, structured, text

__all__ = ["RULES", "Rule", "audio", "images", "latents", "rule", "structured", "text"]
