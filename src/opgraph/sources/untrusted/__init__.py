"""Files that may come from anywhere, looked into before torch opens them."""
