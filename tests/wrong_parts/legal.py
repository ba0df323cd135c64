"""Parts of ``parts`` and of the kit that may do what they do, with the reason."""

LEGAL: dict[str, str] = {}
