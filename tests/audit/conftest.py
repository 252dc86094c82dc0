import pytest

# These say what is not the same, too.
pytest.register_assert_rewrite("audited", "differences")
