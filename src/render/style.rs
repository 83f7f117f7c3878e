//! Colours, on a terminal that wants them.

use k3_terminal::Stream;

/// Whether standard error is a terminal a person looks at.
pub(crate) fn stderr_is_terminal() -> bool {
    k3_terminal::is_terminal(Stream::Stderr)
}

/// Emphasis for standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    terminal: bool,
    coloured: bool,
}

impl Style {
    /// Colours when standard error is a terminal, `NO_COLOR` is unset or empty
    /// and the terminal can do it.
    pub(crate) fn detect() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = stderr_is_terminal();
        Self {
            terminal,
            coloured: terminal && !set("NO_COLOR") && !k3_terminal::is_dumb(),
        }
    }

    /// Never a colour.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self {
            terminal: false,
            coloured: false,
        }
    }

    /// Whether a person looks at the text on a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        self.terminal
    }

    /// An error's label.
    pub(crate) fn error(self, text: &str) -> String {
        self.wrap(text, "1;31")
    }

    /// A warning's label.
    pub(crate) fn warning(self, text: &str) -> String {
        self.wrap(text, "1;33")
    }

    /// The label of something helpful.
    pub(crate) fn hint(self, text: &str) -> String {
        self.wrap(text, "1;36")
    }

    fn wrap(self, text: &str, code: &str) -> String {
        if self.coloured {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
