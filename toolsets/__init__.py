"""What an agent can do: tools, their schemas, and how they compose."""
