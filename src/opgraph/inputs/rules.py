"""All the rules: importing this module fills the table."""

from opgraph.inputs import audio, images, latents, plain, structured, text
from opgraph.inputs.table import RULES, Rule, rule

__all__ = ["RULES", "Rule", "audio", "images", "latents", "plain", "rule", "structured", "text"]
