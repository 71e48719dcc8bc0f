//! A server that answers as a test tells it to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The answer to a command.
pub(super) enum Answer {
    Bytes(Vec<u8>),
    /// The connection ends after these bytes.
    Last(Vec<u8>),
    /// These bytes are repeated as long as somebody reads them.
    Endless(Vec<u8>),
    /// This byte is sent again and again, with pauses.
    Drip(u8),
    /// Nothing follows, and the connection stays open.
    Silence,
}

pub(super) fn bytes(text: &str) -> Answer {
    Answer::Bytes(text.as_bytes().to_vec())
}

pub(super) struct Fake {
    pub place: String,
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    connections: AtomicUsize,
    commands: Mutex<Vec<String>>,
    ended: AtomicBool,
}

/// Reads a command. Returns its words, separated by spaces.
pub(super) fn command(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    let mut number = |input: &mut dyn BufRead| -> io::Result<usize> {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line[1..].trim_end().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    };
    let count = number(input)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; number(input)? + 2];
        input.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words.join(" "))
}

fn serve(stream: TcpStream, shared: &Shared, respond: &dyn Fn(&str) -> Answer) -> io::Result<()> {
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let command = command(&mut input)?;
        shared.commands.lock().expect("no test panics with it").push(command.clone());
        match respond(&command) {
            Answer::Bytes(bytes) => output.write_all(&bytes)?,
            Answer::Last(bytes) => return output.write_all(&bytes),
            Answer::Endless(bytes) => loop {
                output.write_all(&bytes)?;
            },
            Answer::Drip(byte) => loop {
                output.write_all(&[byte])?;
                thread::sleep(Duration::from_millis(20));
            },
            Answer::Silence => {
                // Until the other side gives up.
                return input.read(&mut [0]).map(|_| ());
            }
        }
    }
}

impl Fake {
    pub(super) fn start(respond: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let (within, respond) = (shared.clone(), Arc::new(respond));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if within.ended.load(Ordering::Relaxed) {
                    return;
                }
                within.connections.fetch_add(1, Ordering::Relaxed);
                let (within, respond) = (within.clone(), respond.clone());
                thread::spawn(move || serve(stream, &within, &*respond));
            }
        });
        Fake { place: address.to_string(), address, shared }
    }

    /// Returns a server that answers each command with the same bytes.
    pub(super) fn constant(text: &'static str) -> Fake {
        Fake::start(move |_| bytes(text))
    }

    /// The number of connections that were accepted.
    pub(super) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    pub(super) fn commands(&self) -> Vec<String> {
        self.shared.commands.lock().expect("no test panics with it").clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // It wakes the listener, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}
