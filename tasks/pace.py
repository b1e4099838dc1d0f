"""How many messages the next transaction takes: a batch, half of it, or one at a time."""


class Pace:
    """Full speed, unless the worker before died here or the database refuses a batch."""

    def __init__(self, batch: int, *, died: bool) -> None:
        self._batch = batch
        self._careful = batch if died else 0
        self._refusals = 0
        self.most = 1 if died else batch

    @property
    def careful(self) -> bool:
        """Whether each message's attempt is to be counted before it is touched."""
        return self._careful > 0

    def went_well(self) -> None:
        self._refusals = 0
        self._careful = max(0, self._careful - 1)
        self.most = 1 if self._careful else min(self.most * 2, self._batch)

    def danger_over(self) -> None:
        """Nothing waits that could have killed the worker before."""
        self._careful, self.most = 0, self._batch

    def refused(self) -> bool:
        """Take half next time; True when a single message was refused twice, by itself."""
        if self.most > 1:
            self.most //= 2
            return False
        self._refusals += 1
        return self._refusals > 1
