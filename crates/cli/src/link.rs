//! The messages between manager and worker, over a stream socket that the worker inherits.
//!
//! The manager sends requests and the worker replies, one request at a time and in order, as users of the CLI
//! expect. `Param` has no reply. A message is a little-endian length of four bytes and a postcard encoding. Listening
//! sockets and storage are passed as descriptors that the worker inherits with the same numbers.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use lacquer_params::Params;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the messages. A manager that was upgraded continues only with a worker of the same version.
pub const VERSION: u32 = 6;

/// The hidden first argument that makes the program a worker: `--worker-link=FD`.
pub const WORKER_ARGUMENT: &str = "--worker-link=";

/// Maximum length of a message in bytes. A VCL program with much inlined text fits.
pub const MAX_MESSAGE: usize = 256 << 20;

/// From the manager to the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The first message, with all that does not change while the worker lives. The reply is `Ready`.
    Configure(Box<WorkerConfig>),
    /// The parameters have changed. There is no reply.
    Param(Box<Params>),
    /// Accept no more connections, and exit when those that are open have ended. There is no reply.
    Drain,
    /// A request. The reply is `Reply` with the same id.
    Request {
        /// Chosen by the manager.
        id: u64,
        /// The request.
        body: Request,
    },
    /// Another worker accepts connections from now on: accept no more, and exit when those that are open have ended.
    /// There is no reply.
    Retire,
}

/// A request of the manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Add a VCL program. Runs vcl_init if it becomes warm.
    LoadVcl {
        /// Its name.
        name: String,
        /// The checked program: `lacquer_vcl::Program` in postcard's format.
        program: Vec<u8>,
        /// The state that the user set.
        state: VclState,
        /// Whether it becomes warm now.
        warm: bool,
    },
    /// Point a label at a program. Creates the label if it does not exist.
    LabelVcl {
        /// The label.
        label: String,
        /// The program.
        target: String,
    },
    /// Change state and temperature of a program.
    SetVclState {
        /// Program or label.
        name: String,
        /// The state that the user set.
        state: VclState,
        /// Whether it becomes warm now.
        warm: bool,
    },
    /// Use this program (or label) for new requests.
    UseVcl {
        /// Program or label.
        name: String,
    },
    /// Discard a program or label, which is cold.
    DiscardVcl {
        /// Program or label.
        name: String,
    },
    /// Run a command of the CLI that belongs to the worker, with its words and options as given:
    /// `vcl.list`, `ban`, `ban.list`, `backend.list`, `backend.set_health`, `debug.*` ...
    Cli {
        /// The words, the command first. They need not be UTF-8.
        argv: Vec<Vec<u8>>,
    },
    /// Run `storage.list`, whose words are given.
    ListStorages {
        /// The words, the command first.
        argv: Vec<String>,
        /// The method of each storage, as it was given.
        methods: Vec<String>,
    },
    /// Change the certificates of listeners with TLS.
    Certificates {
        /// The change: `lacquer_tls::Change` in postcard's format.
        change: Vec<u8>,
    },
    /// Respond to these challenges of an ACME server, and to no others.
    Challenges {
        /// The pages of HTTP-01: the token, and the content.
        pages: Vec<(String, String)>,
        /// The certificates of TLS-ALPN-01: `lacquer_tls::ChallengeCertificates` in postcard's format.
        certificates: Vec<u8>,
    },
    /// Start to accept connections.
    Start,
    /// Reply with `PONG` and the time.
    Ping,
    /// Reply, without a log record, after all earlier messages were handled.
    Barrier,
    /// Prepare for another worker that takes over the objects while this one lives: write no more to their memory, report
    /// its use in the files of pins, and send invalidations to the other worker.
    HandOver,
    /// The other worker failed to start, and has ended: continue.
    Resume,
    /// The other worker receives from the UDP sockets from now on, and passes on the datagrams for connections of this one.
    LeaveDatagrams {
        /// The number of sockets of each listener that the other worker has. The others are to be closed.
        sockets: usize,
    },
    /// Report the use of memory again, after `HandOver`.
    ReportUse,
    /// Use the memory that the previous worker does not use anymore; all of it if that worker has ended.
    ReleaseMemory {
        /// Whether it has ended.
        all: bool,
    },
    /// Reply with the health of all backends, for `TakeHealth`.
    Health,
    /// Continue with the health of backends that another worker knows.
    TakeHealth {
        /// Its reply to `Health`.
        text: String,
    },
    /// Reply, without a log record, with the names of the list on demand for which clients have asked since the last
    /// time, one in each line.
    WantedNames,
    /// Reply, without a log record, with the last good addresses of the hosts of backends, for `TakeAddresses`: the number
    /// of their changes in a line, and a text. Reply with nothing if that number is as given.
    Addresses {
        /// The number in the last reply, or 0.
        changes: u64,
    },
    /// Use the addresses that another worker has reported for hosts until their first lookup has succeeded. This comes before
    /// the programs.
    TakeAddresses {
        /// The text of its reply to `Addresses`.
        text: String,
    },
}

/// The temperature that the user set for a VCL program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VclState {
    /// Warm while in use, and cold after some idle time.
    Auto,
    /// Always cold.
    Cold,
    /// Always warm.
    Warm,
    /// It is a label.
    Label,
}

impl VclState {
    /// Returns the state's name in the CLI.
    pub const fn word(self) -> &'static str {
        match self {
            VclState::Auto => "auto",
            VclState::Cold => "cold",
            VclState::Warm => "warm",
            VclState::Label => "label",
        }
    }
}

/// From the worker to the manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// The configuration is in effect; requests may follow.
    Ready,
    /// The reply to a request.
    Reply {
        /// The id of the request.
        id: u64,
        /// Status of the CLI, 200 for success.
        status: u16,
        /// Text for the user, which need not be UTF-8.
        text: Vec<u8>,
    },
}

/// The configuration of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// `-i`: the server's name.
    pub identity: String,
    /// `-n`: absolute path; also the current directory.
    pub workdir: PathBuf,
    /// The listening sockets.
    pub sockets: Vec<ListenSocket>,
    /// The storages for objects. The last one is always `Transient`.
    pub storages: Vec<StorageConfig>,
    /// The part of its address space that it may reserve.
    pub address_space: AddressSpace,
    /// Parameters at startup.
    pub params: Params,
    /// `-j`: the user to become, or `None` to keep the current one.
    pub credentials: Option<Credentials>,
    /// The empty directory `_.vsm_child`, in which the worker creates its index.
    pub vsm_fd: i32,
    /// A memfd for the text of a panic. The worker writes it with pwrite, even in a signal handler, before it dies.
    pub panic_fd: i32,
    /// Process id of the manager.
    pub manager_pid: u32,
    /// If a listener has TLS, its settings: `lacquer_tls::Setup` in postcard's format.
    pub tls: Option<Vec<u8>>,
    /// The sockets that connect workers which serve at the same time.
    pub peers: PeerSockets,
}

/// The sockets that connect a worker to the one before and the one after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSockets {
    /// For the worker that takes over from this one.
    pub successor: Option<i32>,
    /// For the worker from which this one takes over, if that lives.
    pub predecessor: Option<i32>,
    /// For the datagrams of HTTP/3.
    pub datagrams: DatagramPeers,
}

/// The exchange of datagrams between workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramPeers {
    /// The number of the worker, which its connection ids contain. 0 stands for every worker.
    pub worker: u8,
    /// The socket on which the next worker passes on datagrams for this one.
    pub incoming: Option<i32>,
    /// The number of the worker before this one, and the socket that leads to it, if it may still serve connections.
    pub predecessor: Option<(u8, i32)>,
}

/// The division of a worker's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpace {
    /// Bytes of addresses that each storage without a limit reserves.
    pub reserve: u64,
    /// Maximum number of heaps of the C library, or `None` for no limit.
    pub heaps: Option<u32>,
}

/// A bound socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListenSocket {
    /// Descriptor.
    pub fd: i32,
    /// Name: `a0`, `a1` or as given with `-a name=...`.
    pub name: String,
    /// The argument of `-a` that defines it, up to the first comma.
    pub endpoint: String,
    /// The address that it listens on.
    pub address: ListenAddress,
    /// The protocol of its clients.
    pub transport: Transport,
    /// The descriptors of the UDP sockets for HTTP/3, one for each reactor; none without HTTP/3.
    pub datagrams: Vec<i32>,
}

/// The address that a socket listens on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenAddress {
    /// TCP, with the port that was actually bound.
    Ip(std::net::SocketAddr),
    /// UNIX socket; an abstract one begins with `@`.
    Unix(String),
}

/// The protocol of a socket's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// HTTP from the first byte.
    Http,
    /// A PROXY header (version 1 or 2), then HTTP.
    Proxy,
    /// TLS, with HTTP inside.
    Tls,
    /// A PROXY header, then TLS.
    ProxyTls,
}

impl Transport {
    /// Returns whether its connections are encrypted.
    pub const fn is_tls(self) -> bool {
        matches!(self, Transport::Tls | Transport::ProxyTls)
    }

    /// Returns whether its connections begin with a PROXY header.
    pub const fn is_proxy(self) -> bool {
        matches!(self, Transport::Proxy | Transport::ProxyTls)
    }
}

/// A storage for objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StorageConfig {
    /// Name as in `storage.<name>`: `s0`, `Transient` or as given.
    pub name: String,
    /// Its kind.
    pub kind: StorageKind,
    /// Size in bytes, or `None` for no limit.
    pub size: Option<u64>,
    /// The memfd or file, of `size` bytes. An unlimited one is initially empty and is enlarged with ftruncate.
    pub fd: i32,
    /// The table of its objects, if they outlive the worker.
    pub records: Option<RecordsConfig>,
}

/// The table of the objects of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsConfig {
    /// The memfd. It is empty, unless a worker has used it.
    pub fd: i32,
    /// Whether storage and table contain the objects of the last worker. Otherwise both are empty.
    pub take_over: bool,
    /// The table of a worker that still lives and has replied to `HandOver`. The other table is empty then.
    pub predecessor: Option<i32>,
    /// The file of pins: the pages that a worker uses which has replied to `HandOver`.
    pub pins_fd: i32,
    /// Whether such a worker lives.
    pub is_pinned: bool,
}

/// Kinds of storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageKind {
    /// Memory.
    Malloc,
    /// A file, by its path.
    File(PathBuf),
    /// Memory in front of block stores.
    Disk(DisksConfig),
}

/// The block stores of a storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisksConfig {
    /// The stores. Each object is in one of them.
    pub disks: Vec<DiskConfig>,
    /// A file to which the ids of stores are appended, each of eight bytes, that have failed and could not be made
    /// invalid.
    pub marker_fd: i32,
}

/// A block store on a device or in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskConfig {
    /// Its path, for messages.
    pub path: PathBuf,
    /// The descriptor, with the lock of the store.
    pub fd: i32,
    /// The id of the store.
    pub id: u64,
    /// The reason why the manager found that the store cannot be used.
    pub refused: Option<String>,
    /// Shortest body that is stored, in bytes.
    pub min: u64,
    /// Longest body that is stored, in bytes.
    pub max: u64,
}

/// The user and group that a process becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The groups of the user, that group included.
    pub groups: Vec<u32>,
}

/// Writes one message. Nothing is written of a message that is too long ([`is_too_long`]).
pub fn send<M: Serialize>(stream: &mut impl Write, message: &M) -> io::Result<()> {
    stream.write_all(&frame(message, MAX_MESSAGE)?)
}

/// Returns whether a message was not written because it is too long. The link can still be used.
pub fn is_too_long(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

/// Encodes a message of at most `most` bytes.
fn frame<M: Serialize>(message: &M, most: usize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    frame = postcard::to_extend(message, frame).map_err(io::Error::other)?;
    let length = frame.len() - 4;
    if length > most {
        let text = "the message to the other process is too long";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// Reads one message. An error of kind `UnexpectedEof` means that the other process has closed the link.
pub fn receive<M: DeserializeOwned>(stream: &mut impl Read) -> io::Result<M> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_MESSAGE {
        return Err(io::Error::other("the message from the other process is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_as_sent() {
        let params = Params { send_timeout: f64::INFINITY, ..Params::default() };
        let mut wire = Vec::new();
        send(&mut wire, &ToWorker::Param(Box::new(params.clone()))).unwrap();
        let argv = vec![b"ban".to_vec(), b"\xe9".to_vec()];
        send(&mut wire, &ToWorker::Request { id: 7, body: Request::Cli { argv: argv.clone() } }).unwrap();
        let mut wire = wire.as_slice();
        assert!(matches!(receive(&mut wire).unwrap(), ToWorker::Param(got) if *got == params));
        let got: ToWorker = receive(&mut wire).unwrap();
        assert!(matches!(got, ToWorker::Request { id: 7, body: Request::Cli { argv: got } } if got == argv));
        let gone = receive::<FromWorker>(&mut wire).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
        assert!(!is_too_long(&gone));
    }

    #[test]
    fn a_message_that_is_too_long_is_distinguished_from_a_broken_link() {
        let message = ToWorker::Request { id: 7, body: Request::Cli { argv: vec![b"ban".to_vec()] } };
        let length = frame(&message, MAX_MESSAGE).unwrap().len() - 4;
        assert_eq!(frame(&message, length).unwrap().len(), length + 4);
        assert!(is_too_long(&frame(&message, length - 1).unwrap_err()));
    }
}
