//! Ways in which a hub misbehaves.

/// What goes wrong with the answer to one request for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubFault {
    /// The connection ends in order after so many bytes of the body.
    Truncate(u64),
    /// The connection is reset after so many bytes of the body.
    Reset(u64),
    /// The connection ends without any answer.
    Silence,
    /// `Content-Length` is so much more than what is sent.
    LongLength(u64),
    /// `Content-Length` is so much less.
    ShortLength(u64),
    /// `Content-Range` tells of a place so many bytes further on.
    WrongRange(u64),
    /// A code, with `Retry-After` if there is one.
    Status(u16, Option<String>),
    /// 200 and the whole file, whatever range was asked for.
    IgnoreRange,
    /// The bytes of the range, one of them wrong.
    FlipByte,
    /// A redirect to an address.
    Redirect(String),
    /// Nothing for so many milliseconds, after so many bytes of the body.
    Stall(u64, u64),
    /// The file changes in the middle of the answer, its length kept.
    Change,
    /// No `Content-Length`: the end of the connection ends the body, after so
    /// many more bytes than there are.
    Unstated(u64),
}
