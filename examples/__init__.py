"""Example pictures, which the web page offers too: two noisy ones and one of them clean."""
