//! Commands as they are sent: arrays of texts.

use sha1::{Digest, Sha1};

use crate::digest::hex;

/// The commands after which a connection is in another state: in a transaction, in another database or mode, or that of
/// another user. The next command on it could be that of another task.
const CHANGE_STATE: [&str; 17] = [
    "ASKING",
    "AUTH",
    "CLIENT",
    "HELLO",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PSYNC",
    "QUIT",
    "READONLY",
    "READWRITE",
    "REPLCONF",
    "RESET",
    "SELECT",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "WATCH",
];

/// A command that is ready to be sent.
pub(super) struct Request {
    /// The name of the command, for messages.
    pub name: String,
    pub bytes: Vec<u8>,
    /// The command with the script, if `bytes` names the script by its digest.
    pub with_script: Option<Vec<u8>>,
    /// Whether the connection is then in another state, so that it must not be used again.
    pub changes_state: bool,
}

impl Request {
    /// Encodes a command. A script of EVAL is first named by its digest, because the server mostly knows it.
    pub(super) fn new(words: &[Vec<u8>]) -> Request {
        let name = words.first().map(|name| super::parser::shown(name)).unwrap_or_default();
        let bytes = encode(words);
        let changes_state = CHANGE_STATE.iter().any(|command| command.eq_ignore_ascii_case(&name));
        match words {
            [name_word, script, rest @ ..] if name_word.eq_ignore_ascii_case(b"EVAL") => {
                let mut by_digest = vec![b"EVALSHA".to_vec(), hex(&Sha1::digest(script))];
                by_digest.extend_from_slice(rest);
                Request { name, bytes: encode(&by_digest), with_script: Some(bytes), changes_state }
            }
            _ => Request { name, bytes, with_script: None, changes_state },
        }
    }
}

/// Encodes an array of texts.
pub(super) fn encode<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
