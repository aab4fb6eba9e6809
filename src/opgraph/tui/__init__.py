"""The full-screen explorer, for which `pip install 'opgraph[tui]'` brings Textual."""
