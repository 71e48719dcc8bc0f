//! The framing of the language server protocol: a head with the length, then JSON.

use std::io::{self, BufRead, Read, Write};

use serde_json::{Value, json};

/// Longer messages end the connection, in bytes.
const MAX_MESSAGE: usize = 64 << 20;
const MAX_HEAD: u64 = 8 << 10;

// Error codes of JSON-RPC and of the protocol.
pub const PARSE_ERROR: i32 = -32700;
pub const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const NOT_INITIALIZED: i32 = -32002;
pub const REQUEST_FAILED: i32 = -32803;

/// Reads a message. Returns `None` at the end of the input, and an error if the framing is lost.
pub fn read(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut length = None;
    let mut is_first = true;
    loop {
        let mut line = String::new();
        if input.by_ref().take(MAX_HEAD).read_line(&mut line)? == 0 {
            return if is_first { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        is_first = false;
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("Content-Length")
        {
            length = value.trim().parse().ok().filter(|length| *length <= MAX_MESSAGE);
        }
    }
    let length = length.ok_or_else(|| io::Error::other("a message has no valid length"))?;
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Writes a message.
pub fn write(output: &mut impl Write, message: &Value) -> io::Result<()> {
    let text = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{text}", text.len())?;
    output.flush()
}

pub fn result(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub fn error(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

pub fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}
