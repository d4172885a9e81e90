"""The secret under which a text log's tokens and names become ids that lead back to neither."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import blake2b

from eactl.errors import UsageError

LEAST_BYTES = 16  # 128 bits: what nobody tries out
_KEY_BYTES = 32


@dataclass(frozen=True)
class Salt:
    """One run's secret. ``kept`` is True where the user holds it too, so that a later run can give the same ids.

    The secret itself is written nowhere. Keys for blocks and for names are derived from it, so that no id of the one
    kind says anything about the other.
    """

    _secret: bytes = field(repr=False)
    kept: bool

    @classmethod
    def random(cls) -> Salt:
        """A new secret that is forgotten with the run."""
        return cls(secrets.token_bytes(_KEY_BYTES), kept=False)

    @classmethod
    def given(cls, secret: bytes, *, where: str) -> Salt:
        """The user's own. Raises UsageError for one so short that it could be guessed; ``where`` names its origin."""
        secret = secret.strip()
        if len(secret) < LEAST_BYTES:
            raise UsageError(
                f"a salt of {len(secret)} bytes can be guessed", where=where,
                hint=f"make one of {LEAST_BYTES} bytes or more: openssl rand -hex 32",
            )  # fmt: skip
        return cls(secret, kept=True)

    def key(self, purpose: str) -> bytes:
        """A key for one purpose."""
        return blake2b(self._secret, digest_size=_KEY_BYTES, person=purpose.encode()).digest()

    def name(self, text: str) -> str:
        """16 hex digits for a task, session or cache salt: equal text, equal digits."""
        data = text.encode("utf-8", "surrogatepass")
        return blake2b(data, key=self.key("eactl names"), digest_size=8).hexdigest()

    def id_space(self, block_tokens: int) -> str | None:
        """Names the ids that this salt makes of blocks of one size; None for a random salt, whose ids never recur."""
        if not self.kept:
            return None
        return blake2b(str(block_tokens).encode(), key=self.key("eactl id space"), digest_size=8).hexdigest()
