//! What the streams of one connection share: its socket's sending side, its windows, its end. Frames are
//! gathered and leave together; whoever has the turn writes what was gathered before its own.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Waker};

use lacquer_backend::TxHalf;
use lacquer_h2::flow::{INITIAL_WINDOW, ReceiveWindow, SendWindow};
use lacquer_h2::frame::{self, FrameHeader, Kind, flag};
use lacquer_h2::rules::{RapidReset, Rules};
use lacquer_h2::{Error, Fault, Note, Reason, settings::Settings};
use lacquer_params::Params;
use lacquer_shm::{Tag, Vxid};
use lacquer_vcl_runtime::H2Setting;
use tokio::sync::Mutex;

use super::stream::Stream;
use crate::client::Account;
use crate::clock;
use crate::reactor::Reactor;
use crate::session::Sess;

/// More bytes than this that wait to be sent hold up those who would add to them.
const GATHERED_MAX: usize = 64 * 1024;
/// What is kept of the buffer while nothing waits.
const KEPT: usize = 32 * 1024;
/// Frames of body that go into one write.
const BATCH: usize = 4;
/// What was gathered before, the frames with their headers, and the end of the stream.
const PARTS: usize = 2 * BATCH + 2;

/// Frames that wait to be sent; the first bytes may be on their way already.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    sent: usize,
}

impl Gathered {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.sent = 0;
    }
}

/// What came of writing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Nothing waits any more.
    Done,
    /// The socket is full; it wakes us.
    Blocked,
    /// Who is sending wakes us afterwards.
    Others,
}

pub struct Conn {
    pub reactor: Rc<Reactor>,
    pub sess: Rc<Sess>,
    vxid: Vxid,
    tx: Rc<TxHalf>,
    /// Who has it writes to the socket.
    turn: Mutex<()>,
    gathered: RefCell<Gathered>,
    error: Cell<Option<Error>>,
    /// Half a frame may have gone out, or none can.
    broken: Cell<bool>,
    streams: RefCell<Vec<Rc<Stream>>>,
    /// Streams that wait for a window.
    waiting: Cell<u32>,
    pub send_window: Cell<SendWindow>,
    pub recv_window: Cell<ReceiveWindow>,
    pub local: Settings,
    pub remote: Cell<Settings>,
    pub rules: RefCell<Rules>,
    pub goaway: Cell<bool>,
    pub resets: RefCell<RapidReset>,
    account: Cell<Account>,
    waker: RefCell<Option<Waker>>,
    /// Its own task is at work and sees what there is to do without being woken.
    attended: Cell<bool>,
    /// Bytes that the socket took of what was gathered.
    taken: Cell<u64>,
    /// Some body went out.
    progress: Cell<bool>,
}

impl Conn {
    pub fn new(reactor: Rc<Reactor>, sess: Rc<Sess>, tx: Rc<TxHalf>, params: &Params) -> Conn {
        let local = local_settings(params);
        let remote = Settings::DEFAULT;
        Conn {
            vxid: Vxid::client(sess.vxid),
            resets: RefCell::new(RapidReset::new(
                params.h2_rapid_reset,
                u64::from(params.h2_rapid_reset_limit),
                params.h2_rapid_reset_period,
                sess.opened,
            )),
            reactor,
            sess,
            tx,
            turn: Mutex::new(()),
            gathered: RefCell::default(),
            error: Cell::new(None),
            broken: Cell::new(false),
            streams: RefCell::default(),
            waiting: Cell::new(0),
            send_window: Cell::new(SendWindow::new(INITIAL_WINDOW)),
            recv_window: Cell::new(ReceiveWindow::new(INITIAL_WINDOW)),
            local,
            remote: Cell::new(remote),
            rules: RefCell::new(Rules::new(local.max_concurrent_streams)),
            goaway: Cell::new(false),
            account: Cell::default(),
            waker: RefCell::default(),
            attended: Cell::new(false),
            taken: Cell::new(0),
            progress: Cell::new(false),
        }
    }

    pub fn tx(&self) -> &TxHalf {
        &self.tx
    }

    pub fn log(&self, tag: Tag, text: std::fmt::Arguments<'_>) {
        self.reactor.shared.log.write_fmt(tag, self.vxid, text);
    }

    /// A record that the protocol's rules came with, if it is the session's.
    pub fn note(&self, note: &Note) {
        let tag = match note.tag {
            lacquer_h2::Tag::Debug => Tag::Debug,
            lacquer_h2::Tag::SessError => Tag::SessError,
            _ => Tag::BogoHeader,
        };
        self.reactor.shared.log.write(tag, self.vxid, note.text.as_bytes());
    }

    /// What ends, after the log knows why.
    pub fn told(&self, fault: Fault) -> Error {
        if let Some(note) = &fault.note {
            self.note(note);
        }
        fault.error
    }

    // The end.

    pub fn error(&self) -> Option<Error> {
        self.error.get()
    }

    /// The whole connection ends because of this, if not for another reason already.
    pub fn fail(&self, error: Error) {
        if self.error.get().is_none() {
            self.error.set(Some(error));
        }
        self.wake();
        self.wake_streams();
    }

    /// A frame came in: its header, and what is overhead, is nobody else's.
    pub fn received(&self, header: &FrameHeader, payload: &[u8]) {
        let log = &self.reactor.shared.log;
        if !(log.is_masked(Tag::H2RxHdr) && log.is_masked(Tag::H2RxBody)) {
            log.write_binary(Tag::H2RxHdr, self.vxid, &header.bytes());
            if !payload.is_empty() {
                log.write_binary(Tag::H2RxBody, self.vxid, payload);
            }
            self.log(Tag::Debug, format_args!("H2RXF {}", header.describe(payload)));
        }
        let mut account = self.account.get();
        account.req_header += frame::HEADER_LEN as u64;
        if header.kind().is_none_or(Kind::is_overhead) {
            account.req_body += u64::from(header.len);
        }
        self.account.set(account);
    }

    // Who waits.

    pub fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// The connection's own task has something to do.
    pub fn wake(&self) {
        if self.attended.get() {
            return;
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub fn attend(&self, attended: bool) {
        self.attended.set(attended);
    }

    pub fn wake_streams(&self) {
        for stream in self.streams.borrow().iter() {
            stream.wake();
        }
    }

    // The session's own limits, for module h2.

    pub fn limit(&self, which: H2Setting) -> f64 {
        let resets = self.resets.borrow();
        match which {
            H2Setting::RapidReset => resets.threshold,
            H2Setting::RapidResetLimit => resets.limit,
            H2Setting::RapidResetPeriod => resets.period,
            H2Setting::RapidResetBudget => resets.budget,
        }
    }

    pub fn set_limit(&self, which: H2Setting, value: f64, now: f64) {
        let mut resets = self.resets.borrow_mut();
        match which {
            H2Setting::RapidReset => resets.threshold = value,
            H2Setting::RapidResetLimit => resets.limit = value,
            H2Setting::RapidResetPeriod => resets.period = value,
            H2Setting::RapidResetBudget => return,
        }
        resets.restart(now);
    }

    // Streams.

    pub fn stream(&self, id: u32) -> Option<Rc<Stream>> {
        let streams = self.streams.borrow();
        let at = streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        Some(streams[at].clone())
    }

    pub fn each_stream(&self, mut work: impl FnMut(&Stream)) {
        self.streams.borrow().iter().for_each(|stream| work(stream));
    }

    /// Numbers only rise, so that the streams stay sorted.
    pub fn enter(&self, stream: Rc<Stream>) {
        self.streams.borrow_mut().push(stream);
    }

    pub fn leave(&self, id: u32) {
        let mut streams = self.streams.borrow_mut();
        if let Ok(at) = streams.binary_search_by_key(&id, |stream| stream.id) {
            streams.remove(at);
        }
        if streams.is_empty() {
            drop(streams);
            self.wake();
        }
    }

    pub fn streams(&self) -> usize {
        self.streams.borrow().len()
    }

    /// Whether any body went out since this was asked before.
    pub fn take_progress(&self) -> bool {
        self.progress.replace(false)
    }

    /// So many requests are at work, reset ones among them, that no more should begin.
    pub fn is_crowded(&self) -> bool {
        self.streams() >= 2 * self.local.max_concurrent_streams.max(50) as usize
    }

    pub fn count_waiting(&self, more: i32) {
        self.waiting.set(self.waiting.get().saturating_add_signed(more));
    }

    /// So many bytes of body go out.
    pub fn charge(&self, bytes: usize) {
        let mut window = self.send_window.get();
        window.charge(bytes);
        self.send_window.set(window);
    }

    /// Or do not; others may want to.
    pub fn uncharge(&self, bytes: usize) {
        let mut window = self.send_window.get();
        window.adjust(bytes as i64);
        self.send_window.set(window);
        self.wake_streams();
    }

    /// All streams there are wait for windows that do not come.
    pub fn is_bankrupt(&self) -> bool {
        self.rules.borrow().open <= self.waiting.get()
    }

    // Sending.

    /// Adds frames to those that wait; they leave before anything that is added later.
    pub fn queue(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.broken.get() {
            return;
        }
        let mut gathered = self.gathered.borrow_mut();
        let from = gathered.bytes.len();
        write(&mut gathered.bytes);
        for (header, payload) in frame::split(&gathered.bytes[from..]) {
            self.count_sent(&header);
            self.log_sent(&header, payload);
        }
        drop(gathered);
        self.wake();
    }

    fn count_sent(&self, header: &FrameHeader) {
        let mut account = self.account.get();
        account.resp_header += frame::HEADER_LEN as u64;
        if header.kind().is_some_and(Kind::is_overhead) {
            account.resp_body += u64::from(header.len);
        }
        self.progress.set(self.progress.get() || header.number == Kind::Data as u8);
        self.account.set(account);
    }

    fn log_sent(&self, header: &FrameHeader, payload: &[u8]) {
        let log = &self.reactor.shared.log;
        log.write_binary(Tag::H2TxHdr, self.vxid, &header.bytes());
        if !payload.is_empty() {
            log.write_binary(Tag::H2TxBody, self.vxid, payload);
        }
    }

    pub fn reset_stream(&self, stream: u32, error: Error) {
        self.log(Tag::Debug, format_args!("H2: stream {stream}: {}", error.text()));
        self.queue(|out| frame::rst_stream(out, stream, error.code()));
    }

    /// The longest payload that the client takes.
    pub fn max_frame(&self) -> usize {
        (self.remote.get().max_frame_size as usize).max(1)
    }

    /// So much waits to be sent that nothing should be added.
    pub fn is_clogged(&self) -> bool {
        self.gathered.borrow().rest().len() >= GATHERED_MAX
    }

    /// Bytes that the socket took so far.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    pub fn has_room(&self, bytes: usize) -> bool {
        self.gathered.borrow().rest().len() + bytes < GATHERED_MAX
    }

    /// Sends what waits, as far as the socket takes it and nobody else is sending.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Flush {
        loop {
            if self.gathered.borrow().rest().is_empty() || self.broken.get() {
                return Flush::Done;
            }
            let Ok(_turn) = self.turn.try_lock() else { return Flush::Others };
            let mut gathered = self.gathered.borrow_mut();
            match self.tx.try_write(gathered.rest()) {
                Ok(n) => {
                    self.taken.set(self.taken.get() + n as u64);
                    gathered.sent += n;
                    if gathered.rest().is_empty() {
                        gathered.clear();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.tx.poll_writable(cx).is_pending() {
                        return Flush::Blocked;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    drop(gathered);
                    self.write_failed(0, &e);
                }
            }
        }
    }

    /// Nothing more can be said to this client.
    fn write_failed(&self, stream: u32, e: &io::Error) {
        if e.kind() == io::ErrorKind::TimedOut {
            self.log(Tag::SessError, format_args!("H2: stream {stream}: Hit idle_send_timeout"));
        } else {
            let errno = e.raw_os_error().unwrap_or(0);
            self.log(Tag::Debug, format_args!("H2: stream {stream}: write error s=-1 errno={errno}"));
        }
        self.broken.set(true);
        self.fail(Error::Connection(Reason::ProtocolError));
    }

    /// The client did not take a byte for too long.
    pub fn stalled(&self) {
        self.write_failed(0, &io::ErrorKind::TimedOut.into());
    }

    /// Sends frames of one stream's body from where they are, with all that was gathered before them. As much
    /// of `data` goes out as fits a write, which is answered; `end` says that the last of it ends the stream.
    pub async fn send_data(&self, stream: u32, data: &[u8], end: bool, idle: f64) -> Result<usize, ()> {
        let _turn = self.turn.lock().await;
        if self.broken.get() {
            return Err(());
        }
        let max = self.max_frame();
        let len = data.len().min(max * BATCH);
        let ends = end && len == data.len();
        let mut headers = [[0u8; frame::HEADER_LEN]; BATCH];
        let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
        let announce = |flags: u8, piece: &[u8]| {
            let header = FrameHeader::new(Kind::Data, flags, stream, piece.len());
            self.count_sent(&header);
            self.log_sent(&header, piece);
            header.bytes()
        };
        for (piece, place) in data[..len].chunks(max).zip(&mut headers) {
            *place = announce(0, piece);
        }
        let last = if ends { announce(flag::END_STREAM, &[]) } else { [0; frame::HEADER_LEN] };
        let before = std::mem::take(&mut *self.gathered.borrow_mut());
        parts[0] = before.rest();
        for (at, (piece, header)) in data[..len].chunks(max).zip(&headers).enumerate() {
            parts[1 + 2 * at] = header;
            parts[2 + 2 * at] = piece;
        }
        if ends {
            parts[PARTS - 1] = &last;
        }
        let written = self.write_parts(&mut parts, idle).await;
        self.give_back(before);
        match written {
            Ok(()) => Ok(len),
            Err(e) => {
                self.write_failed(stream, &e);
                Err(())
            }
        }
    }

    /// The buffer of what is sent serves again; what came meanwhile is the connection's own task's.
    fn give_back(&self, mut sent: Gathered) {
        let mut gathered = self.gathered.borrow_mut();
        if gathered.bytes.is_empty() {
            sent.clear();
            *gathered = sent;
        }
        drop(gathered);
        self.wake();
    }

    async fn write_parts(&self, parts: &mut [&[u8]], idle: f64) -> io::Result<()> {
        let mut first = 0;
        loop {
            while parts.get(first).is_some_and(|part| part.is_empty()) {
                first += 1;
            }
            if first == parts.len() {
                return Ok(());
            }
            let mut slices = [IoSlice::new(&[]); PARTS];
            let mut used = 0;
            for part in parts[first..].iter().filter(|part| !part.is_empty()) {
                slices[used] = IoSlice::new(part);
                used += 1;
            }
            match self.tx.try_write_vectored(&slices[..used]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => advance(parts, n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable(idle).await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    async fn writable(&self, idle: f64) -> io::Result<()> {
        let idle = if idle > 0.0 { idle } else { 1e9 };
        match tokio::time::timeout(clock::seconds(idle), self.tx.writable()).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Waits until frames may be added again.
    pub async fn room(&self, stream: u32, idle: f64) -> Result<(), ()> {
        while self.is_clogged() {
            // Like a piece of body without any: what was gathered leaves first.
            self.send_data(stream, &[], false, idle).await?;
        }
        if self.broken.get() { Err(()) } else { Ok(()) }
    }
}

impl Conn {
    /// The last records, and the bytes of frames that belong to no request.
    pub fn finish(&self) {
        let a = self.account.get();
        let (request, response) = (a.req_header + a.req_body, a.resp_header + a.resp_body);
        let text = format_args!(
            "{} {} {request} {} {} {response}",
            a.req_header, a.req_body, a.resp_header, a.resp_body
        );
        self.log(Tag::ReqAcct, text);
        let c = &self.reactor.counters;
        c.s_req_hdrbytes.add(a.req_header);
        c.s_req_bodybytes.add(a.req_body);
        c.s_resp_hdrbytes.add(a.resp_header);
        c.s_resp_bodybytes.add(a.resp_body);
    }
}

fn advance(parts: &mut [&[u8]], mut n: usize) {
    for part in parts {
        let of_part = n.min(part.len());
        *part = &part[of_part..];
        n -= of_part;
    }
}

fn local_settings(params: &Params) -> Settings {
    Settings {
        header_table_size: params.h2_header_table_size as u32,
        max_concurrent_streams: params.h2_max_concurrent_streams,
        initial_window_size: params.h2_initial_window_size as u32,
        max_frame_size: params.h2_max_frame_size as u32,
        max_header_list_size: params.http_req_size as u32,
        ..Settings::DEFAULT
    }
}
