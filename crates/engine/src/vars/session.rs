//! The variables of a client's connection: addresses, names and timeouts.

use std::net::SocketAddr;

use lacquer_http::Text;
use lacquer_vcl::variables_table::Var;

use super::shown;
use crate::session::{Sess, Timeout};
use crate::task::Task;

pub fn ip(sess: &Sess, var: Var) -> Option<&SocketAddr> {
    let side = match var {
        Var::ClientIp => &sess.ends().client,
        Var::ServerIp => &sess.ends().server,
        Var::RemoteIp => &sess.ends().remote,
        Var::LocalIp => &sess.ends().local,
        _ => return None,
    };
    Some(&side.addr)
}

/// Returns the counts of the client's address.
pub fn int(task: &Task, var: Var) -> Option<i64> {
    match var {
        Var::ClientConnections => Some(i64::from(task.sess().address().connections())),
        Var::ClientRequests => Some(i64::from(task.sess().address().requests())),
        _ => None,
    }
}

/// Returns a text, which lives as long as the session or the worker.
pub fn text(task: &Task, var: Var) -> Option<&[u8]> {
    let shared = task.services().shared();
    let text = match var {
        Var::ServerHostname => shared.hostname(),
        Var::ServerIdentity if shared.identity().is_empty() => "varnishd",
        Var::ServerIdentity => shared.identity(),
        Var::LocalEndpoint => task.sess().listener().endpoint(),
        Var::LocalSocket => task.sess().listener().name(),
        _ => return None,
    };
    Some(text.as_bytes())
}

/// Returns `client.identity`: the text that VCL has set, else the client's address.
pub fn identity(task: &Task, chosen: Text) -> Option<&[u8]> {
    task.ws().get_opt(chosen).or_else(|| Some(task.sess().client_ip().as_bytes()))
}

fn timeout_of(var: Var) -> Option<Timeout> {
    match var {
        Var::SessTimeoutIdle => Some(Timeout::Idle),
        Var::SessTimeoutLinger => Some(Timeout::Linger),
        Var::SessSendTimeout => Some(Timeout::Send),
        Var::SessIdleSendTimeout => Some(Timeout::IdleSend),
        _ => None,
    }
}

pub fn timeout(task: &Task, var: Var) -> Option<f64> {
    timeout_of(var).map(|which| shown(task.sess().timeout(which, task.params())))
}

/// Sets a timeout; `None` restores the parameter's value. Returns false if the variable is not a timeout.
pub fn set_timeout(sess: &Sess, var: Var, value: Option<f64>) -> bool {
    let Some(which) = timeout_of(var) else { return false };
    sess.set_timeout(which, value.map(|seconds| seconds.max(0.0)));
    true
}
