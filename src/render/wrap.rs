//! Lines of 80 columns, wherever they go.

use k3_terminal::COLUMNS;

/// Breaks lines between words, where a terminal would break inside them.
pub(crate) fn wrap(text: &str) -> String {
    k3_terminal::wrap(text, COLUMNS)
}
