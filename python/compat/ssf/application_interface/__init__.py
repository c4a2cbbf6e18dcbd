"""What applications implement and use."""
