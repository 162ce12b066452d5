"""An environment whose rewards differ with every word, so that each batch has something to teach."""

from environments.lookup_env import LookupEnv


class Wordy(LookupEnv):
    """Rewards some words more than others."""

    name = "wordy"

    async def compute_reward(self, item, result, ctx):
        return float(sum(sum(turn.output_ids) for turn in result.turns))


if __name__ == "__main__":
    Wordy.cli()
