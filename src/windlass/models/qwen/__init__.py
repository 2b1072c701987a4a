"""What programs written for Qwen-Agent need to move over: its messages and its settings."""
