"""The rollout API: environments push scored groups, trainers lease them; nothing acknowledged is lost."""
