//! Workspaces by name, for the VMOD vtc. Each task has its own workspace. The workspaces of the session and of the
//! thread exist only in Varnish; stand-ins of the same size live as long as the session and the task.

use lacquer_http::{Mark, Workspace};
use lacquer_vcl_runtime::HostResult;

use super::workspace_costs;
use crate::task::Task;

/// The bytes of the thread's workspace that Varnish needs to start sending a response.
const THREAD_NEEDED: usize = 160;
/// The byte with which Varnish fills the part of a dump after a workspace's end.
const BEYOND: u8 = 0x15;

/// The stand-in for the thread's workspace and the only snapshot, stored with the task's private values.
#[derive(Default)]
struct Extra {
    thread: Option<Workspace>,
    snapshot: Option<Mark>,
}

fn session(size: usize) -> Workspace {
    let mut ws = Workspace::new(size);
    // A smaller workspace is full from the start.
    let _ = ws.alloc(workspace_costs::SESSION.min(ws.capacity()));
    ws
}

/// Runs `work` on a workspace and the snapshot. Returns `None` if the task has no workspace of this name.
fn with<T>(
    task: &mut Task,
    which: &str,
    work: impl FnOnce(&mut Workspace, &mut Option<Mark>) -> T,
) -> Option<T> {
    let is_client = task.vxid().is_client();
    let (params, sess) = (task.params().clone(), task.sess().clone());
    let (privates, own) = task.privates_and_ws();
    let extra = privates.get::<Extra>(0);
    let ws = match which {
        "client" => own,
        "backend" if !is_client => own,
        "session" if is_client => {
            let new = || session(params.workspace_session as usize);
            return Some(sess.with_workspace(|ws| work(ws.get_or_insert_with(new), &mut extra.snapshot)));
        }
        "thread" => extra.thread.get_or_insert_with(|| Workspace::new(params.workspace_thread as usize)),
        _ => return None,
    };
    Some(work(ws, &mut extra.snapshot))
}

pub fn free(task: &mut Task, which: &str) -> Option<usize> {
    with(task, which, |ws, _| ws.free_space())
}

pub fn alloc(task: &mut Task, which: &str, bytes: usize) -> bool {
    let done = with(task, which, |ws, _| match ws.alloc(bytes) {
        Ok(place) => {
            ws.get_mut(place).fill(0);
            true
        }
        Err(_) => false,
    });
    done.unwrap_or(false)
}

pub fn overflow(task: &mut Task, which: &str) {
    with(task, which, |ws, _| ws.set_overflowed());
}

pub fn overflowed(task: &mut Task, which: &str) -> bool {
    with(task, which, |ws, _| ws.overflowed()).unwrap_or(false)
}

/// Takes a snapshot. An overflowed workspace has none, and resetting it does nothing.
pub fn snapshot(task: &mut Task, which: &str) {
    with(task, which, |ws, snapshot| *snapshot = (!ws.overflowed()).then(|| ws.mark()));
}

pub fn reset(task: &mut Task, which: &str) {
    with(task, which, |ws, snapshot| {
        if let Some(mark) = *snapshot {
            ws.roll_back(mark);
        }
    });
}

/// Returns the bytes from the start (`s`) or from the free part (`f`). There is never a reservation (`r`).
pub fn dump(task: &mut Task, which: &str, at: u8, offset: usize, length: usize) -> HostResult<Vec<u8>> {
    with(task, which, |ws, _| read_bytes(ws, at, offset, length)).unwrap_or_else(|| Err("NULL".to_owned()))
}

fn read_bytes(ws: &mut Workspace, at: u8, offset: usize, length: usize) -> HostResult<Vec<u8>> {
    if at == b'r' {
        return Err("NULL".to_owned());
    }
    // Release the used part for a moment, to read it as reserved space.
    let used = if at == b's' { ws.used() } else { 0 };
    if used > 0 {
        ws.release(Workspace::new(0).mark());
    }
    let all = ws.reserve_all();
    let seen = all.get(offset..).filter(|rest| !rest.is_empty());
    let seen = seen.map(|rest| rest[..length.min(rest.len())].to_vec());
    ws.commit(used);
    let mut bytes = seen.ok_or("off limit")?;
    bytes.resize(length, BEYOND);
    Ok(bytes)
}

/// Returns the name of a stand-in that is too full for a response to be sent.
pub fn exhausted(task: &mut Task) -> Option<&'static str> {
    if task.sess().workspace_overflowed() {
        return Some("workspace_session");
    }
    let thread = task.privates().peek::<Extra>(0).and_then(|extra| extra.thread.as_ref());
    thread.is_some_and(|ws| ws.overflowed() || ws.free_space() < THREAD_NEEDED).then_some("workspace_thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_does_not_change_the_workspace() {
        let mut ws = Workspace::new(64);
        let kept = ws.copy(b"kept").unwrap();
        assert_eq!(read_bytes(&mut ws, b's', 1, 4).unwrap(), b"ept\0");
        assert_eq!(read_bytes(&mut ws, b'f', 40, 10).unwrap(), b"\0\0\0\0\0\0\0\0\x15\x15");
        assert_eq!(read_bytes(&mut ws, b'f', 48, 1).unwrap_err(), "off limit");
        assert_eq!(read_bytes(&mut ws, b'r', 0, 1).unwrap_err(), "NULL");
        assert_eq!((ws.used(), ws.get(kept)), (8, &b"kept"[..]));
    }
}
