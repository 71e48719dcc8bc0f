//! The replies of servers, as values.

/// A reply, or an element of one. Maps and sets are arrays of their keys and values; a verbatim text is a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Nil,
    Status(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Boolean(bool),
    /// A number with its text.
    Double(f64, Vec<u8>),
    /// The digits of a number that may be larger than an INT.
    Large(Vec<u8>),
    Text(Vec<u8>),
    Array(Vec<Reply>),
}

impl Reply {
    pub(super) fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil)
    }

    pub(super) fn is_status(&self) -> bool {
        matches!(self, Reply::Status(_))
    }

    pub(super) fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    pub(super) fn is_integer(&self) -> bool {
        matches!(self, Reply::Integer(_))
    }

    pub(super) fn is_boolean(&self) -> bool {
        matches!(self, Reply::Boolean(_))
    }

    pub(super) fn is_double(&self) -> bool {
        matches!(self, Reply::Double(..))
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self, Reply::Text(_))
    }

    pub(super) fn is_array(&self) -> bool {
        matches!(self, Reply::Array(_))
    }

    /// Returns the reply as a text. Arrays have none.
    pub(super) fn text(&self) -> Option<Vec<u8>> {
        match self {
            Reply::Status(text) | Reply::Error(text) | Reply::Text(text) | Reply::Large(text) => {
                Some(text.clone())
            }
            Reply::Double(_, text) => Some(text.clone()),
            Reply::Integer(number) => Some(number.to_string().into_bytes()),
            Reply::Boolean(value) => Some(if *value { b"1".to_vec() } else { b"0".to_vec() }),
            Reply::Nil | Reply::Array(_) => None,
        }
    }

    /// Returns an element of an array.
    pub(super) fn element(&self, index: i64) -> Option<&Reply> {
        match self {
            Reply::Array(elements) => elements.get(usize::try_from(index).ok()?),
            _ => None,
        }
    }

    /// Returns whether the server does not know the script of an EVALSHA.
    pub(super) fn lacks_script(&self) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with(b"NOSCRIPT"))
    }

    /// Returns whether the server refuses a command because it is a slave.
    pub(super) fn is_of_slave(&self) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with(b"READONLY"))
    }
}
