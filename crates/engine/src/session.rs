//! The part of a session that its requests use: the ends of the client's connection, and settings that VCL may
//! change.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lacquer_http::{SessClose, Workspace};
use lacquer_net::{Listener, Negotiated, Side, Stream};
use lacquer_params::Params;
use lacquer_shm::vsc::LocalMain;
use lacquer_shm::{Log, Tag, Vxid};

use crate::addresses::AddressUsage;

/// A session timeout: the value that VCL has set, else the parameter's.
#[derive(Debug, Default)]
pub struct Override(Cell<Option<f64>>);

impl Override {
    pub fn get(&self, default: f64) -> f64 {
        self.0.get().unwrap_or(default)
    }

    pub fn set(&self, value: Option<f64>) {
        self.0.set(value);
    }
}

/// The addresses of a connection.
pub struct Ends {
    /// The addresses of the socket.
    pub remote: Side,
    pub local: Side,
    /// The addresses from the PROXY header, else those of the socket.
    pub client: Side,
    pub server: Side,
}

/// The timeouts of a session.
#[derive(Default)]
pub struct Timeouts {
    pub idle: Override,
    pub linger: Override,
    pub send: Override,
    pub idle_send: Override,
}

pub struct Sess {
    pub vxid: u64,
    pub listener: Arc<Listener>,
    pub ends: Ends,
    /// The facts that the connection's transport has negotiated, once it has passed the stages of its listener.
    pub negotiated: Negotiated,
    /// The extensions of a PROXY header, version 2.
    pub proxy_tlvs: Vec<u8>,
    /// The uid and gid of the peer of a UNIX socket.
    pub credentials: Option<(u32, u32)>,
    pub opened: f64,
    pub fd: i32,
    pub timeouts: Timeouts,
    /// The session's use of its client address's limits.
    pub address: AddressUsage,
    /// A stand-in for Varnish's session workspace, created when first used.
    pub workspace: RefCell<Option<Workspace>>,
}

impl Sess {
    pub fn new(vxid: u64, listener: Arc<Listener>, stream: &Stream, opened: f64) -> Sess {
        let remote = stream.peer_addr().map_or_else(Side::none, Side::of);
        let local = stream.local_addr().map_or_else(Side::none, Side::of);
        let credentials =
            listener.is_unix().then(|| lacquer_system::peer_credentials(stream.as_fd())).flatten();
        let sess = Sess::between(vxid, listener, (remote, local), stream.raw_fd(), opened);
        Sess { credentials, ..sess }
    }

    /// Creates a session between two addresses. `fd` is for the log.
    pub fn between(
        vxid: u64,
        listener: Arc<Listener>,
        (remote, local): (Side, Side),
        fd: i32,
        opened: f64,
    ) -> Sess {
        Sess {
            vxid,
            listener,
            ends: Ends { client: remote.clone(), server: local.clone(), remote, local },
            negotiated: Negotiated::default(),
            proxy_tlvs: Vec::new(),
            credentials: None,
            opened,
            fd,
            timeouts: Timeouts::default(),
            address: AddressUsage::default(),
            workspace: RefCell::default(),
        }
    }

    /// Logs the beginning of the session. `protocol` is the one with which its connection begins.
    pub fn log_open(&self, log: &Log, protocol: &str) {
        let vxid = Vxid::client(self.vxid);
        log.write_fmt(Tag::Begin, vxid, format_args!("sess 0 {protocol}"));
        log.write_fmt(
            Tag::SessOpen,
            vxid,
            format_args!(
                "{} {} {} {} {} {:.6} {}",
                self.ends.remote.ip,
                self.ends.remote.port,
                self.listener.name(),
                self.ends.local.ip,
                self.ends.local.port,
                self.opened,
                self.fd
            ),
        );
    }

    pub fn log_close(&self, log: &Log, reason: SessClose, now: f64) {
        let vxid = Vxid::client(self.vxid);
        let lasted = (now - self.opened).max(0.0);
        log.write_fmt(Tag::SessClose, vxid, format_args!("{} {lasted:.3}", reason.name()));
        log.write(Tag::End, vxid, b"");
    }

    /// Logs the timeout that ends the session of a slow client.
    #[cold]
    pub fn log_late(&self, log: &Log, what: &str) {
        log.write_fmt(Tag::SessError, Vxid::client(self.vxid), format_args!("Hit timeout_idle in a {what}"));
    }

    pub fn workspace_overflowed(&self) -> bool {
        self.workspace.borrow().as_ref().is_some_and(Workspace::overflowed)
    }

    /// Returns the seconds for which the client may take no byte of a response.
    pub fn send_idle_limit(&self, params: &Params) -> f64 {
        self.timeouts.idle_send.get(params.idle_send_timeout)
    }

    pub fn idle_limit(&self, params: &Params) -> f64 {
        self.timeouts.idle.get(params.timeout_idle)
    }
}

/// Counts the end of a session by its reason.
pub fn count_close(c: &LocalMain, reason: SessClose) {
    let counter = match reason {
        SessClose::RemClose => &c.sc_rem_close,
        SessClose::ReqClose => &c.sc_req_close,
        SessClose::ReqHttp10 => &c.sc_req_http10,
        SessClose::RxBad => &c.sc_rx_bad,
        SessClose::RxBody => &c.sc_rx_body,
        SessClose::RxJunk => &c.sc_rx_junk,
        SessClose::RxOverflow => &c.sc_rx_overflow,
        SessClose::RxTimeout => &c.sc_rx_timeout,
        SessClose::RxCloseIdle => &c.sc_rx_close_idle,
        SessClose::TxPipe => &c.sc_tx_pipe,
        SessClose::TxError => &c.sc_tx_error,
        SessClose::TxEof => &c.sc_tx_eof,
        SessClose::RespClose => &c.sc_resp_close,
        SessClose::Overload => &c.sc_overload,
        SessClose::PipeOverflow => &c.sc_pipe_overflow,
        SessClose::RangeShort => &c.sc_range_short,
        SessClose::ReqHttp20 => &c.sc_req_http20,
        SessClose::VclFailure => &c.sc_vcl_failure,
        SessClose::RapidReset => &c.sc_rapid_reset,
        SessClose::Bankrupt => &c.sc_bankrupt,
    };
    counter.add(1);
    if reason.is_error() {
        c.sess_closed_err.add(1);
    }
}
