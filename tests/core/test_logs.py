"""quiet() hides what a logger says, and only inside the block."""

import logging

from fedsol.core.logs import quiet


def test_warnings_are_hidden_inside_the_block_only(caplog):
    logger = logging.getLogger("fedsol.some.module")
    with quiet("fedsol.some"):
        logger.warning("hidden")
        logger.error("shown")
    logger.warning("shown again")
    assert caplog.messages == ["shown", "shown again"]
