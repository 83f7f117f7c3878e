//! Programs on a terminal, and what a person then sees.

use std::fs::File;
use std::io::{self, Read as _};
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use unicode_width::UnicodeWidthChar as _;

/// Runs `command` with both outputs on a terminal of `columns` columns that knows the usual
/// sequences. How it ended, and the lines that are on the screen at the end: what goes
/// beyond a line is broken where the terminal ends.
///
/// # Errors
///
/// No terminal is to be had, the program cannot be started, or what it wrote is no UTF-8.
pub fn on_terminal(mut command: Command, columns: u16) -> io::Result<(ExitStatus, Vec<String>)> {
    // No program that another test starts meanwhile may keep an end open.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let screen_end = openpt(flags)?;
    grantpt(&screen_end)?;
    unlockpt(&screen_end)?;
    let program_end = ioctl_tiocgptpeer(&screen_end, flags)?;
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&screen_end, size)?;
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    command.stdin(Stdio::null());
    command.stdout(program_end.try_clone()?).stderr(program_end);
    let mut child = command.spawn()?;
    // The command keeps the program's end open.
    drop(command);
    let mut bytes = Vec::new();
    let read = File::from(screen_end).read_to_end(&mut bytes);
    let status = child.wait()?;
    // A terminal that everybody has left ends with this error, behind all that was written.
    match read {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::IO.raw_os_error()) => {
            return Err(error);
        }
        _ => {}
    }
    // All at once: a character may have arrived in two pieces.
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    Ok((status, screen(&text, columns.into())))
}

/// Columns that `line` takes on a screen.
#[must_use]
pub fn width(line: &str) -> usize {
    line.chars().filter_map(char::width).sum()
}

/// What a terminal of `columns` columns shows of `written`.
fn screen(written: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![Line::default()];
    let mut column: usize = 0;
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        let line = lines.last_mut().expect("there is one");
        match c {
            '\r' => column = 0,
            '\n' => {
                lines.push(Line::default());
                column = 0;
            }
            '\u{1b}' => match sequence(&mut chars) {
                (count, 'D') => column = column.saturating_sub(count.max(1)),
                (_, 'K') => line.cells.truncate(column),
                _ => {}
            },
            c => {
                let width = c.width().unwrap_or(0);
                if column + width > columns {
                    lines.push(Line::default());
                    column = 0;
                }
                let line = lines.last_mut().expect("there is one");
                line.put(column, c, width);
                column += width;
            }
        }
    }
    lines.into_iter().map(|line| line.cells.concat()).collect()
}

/// A sequence behind its escape: "[", a number, and a letter that says what is done.
fn sequence(chars: &mut impl Iterator<Item = char>) -> (usize, char) {
    let mut count = 0;
    for c in chars.skip(1) {
        match c.to_digit(10) {
            Some(digit) => count = 10 * count + digit as usize,
            None if c == ';' || c == '?' => {}
            None => return (count, c),
        }
    }
    (count, '\0')
}

/// A line of a screen: what each column shows. The second column of a wide character
/// shows nothing of its own.
#[derive(Debug, Default)]
struct Line {
    cells: Vec<String>,
}

impl Line {
    fn put(&mut self, column: usize, c: char, width: usize) {
        let blanks = self.cells.len().max(column + width);
        self.cells.resize(blanks, " ".to_owned());
        if width == 0 {
            // An accent, on what stands before it.
            let mut before = self.cells[..column].iter_mut();
            if let Some(cell) = before.rfind(|cell| !cell.is_empty()) {
                cell.push(c);
            }
            return;
        }
        self.cells[column] = c.to_string();
        self.cells[column + 1..column + width].fill(String::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_what_is_left_of_it() {
        assert_eq!(screen("abc\r\nde\rx", 80), ["abc", "xe"]);
        assert_eq!(screen("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(screen("ab cd\u{1b}[2D\u{1b}[K\r\ncde", 5), ["ab ", "cde"]);
        assert_eq!(screen("\u{1b}[1;31mab\u{1b}[0m", 5), ["ab"]);
        assert_eq!(screen("漢字漢字", 5), ["漢字", "漢字"], "two columns each");
        assert_eq!(screen("a漢字\u{1b}[2D\u{1b}[K漢", 9), ["a漢漢"]);
        assert_eq!(screen("ae\u{301}b", 3), ["ae\u{301}b"], "no column");
        assert_eq!(width("a漢e\u{301}"), 4);
    }

    #[test]
    fn a_program_finds_a_terminal() {
        let mut command = Command::new("sh");
        command.args(["-c", "test -t 1 && test -t 2 && echo yes"]);
        let (status, lines) = on_terminal(command, 40).unwrap();
        assert!(status.success());
        assert_eq!(lines, ["yes", ""]);
    }

    #[test]
    fn all_that_a_program_wrote_arrives_whatever_its_pieces() {
        // More than a terminal holds, with the end written when nobody waits any more.
        let mut command = Command::new("sh");
        let script = "for i in $(seq 2000); do echo 漢字 e\u{301} $i; done; printf '\\346\\274'; \
                      sleep 0.1; printf '\\242.'";
        command.args(["-c", script]);
        let (status, lines) = on_terminal(command, 40).unwrap();
        assert!(status.success());
        assert_eq!(lines.len(), 2001);
        assert_eq!(lines[1999], "漢字 e\u{301} 2000");
        assert_eq!(lines[2000], "漢.");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let command = Command::new("/no/such/program");
        assert_eq!(
            on_terminal(command, 40).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
