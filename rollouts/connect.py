"""From settings to the model client and the sandbox backend they name."""
