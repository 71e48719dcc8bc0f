//! `-j`: the users of the two processes. The manager drops to an ordinary user and becomes root again only for the
//! operations that need it. The worker drops root permanently.

use lacquer_cli::link::Credentials;
use lacquer_cli::tokenize::{Rules, split};
use rustix::fs::{Gid, Mode, Uid};
use rustix::process::{getegid, geteuid, getgid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::complain::{Complain, Level};
use crate::fault::{Fault, Outcome};
use crate::users::{self, User};

const DEFAULT_USER: &str = "varnish";
const DEFAULT_WORK_USER: &str = "vcache";
/// User ids for a system without these users. Debian and systemd do not assign them.
const FALLBACK_IDS: (u32, u32) = (65_530, 65_531);
/// The advice when the automatic choice is impossible.
const REMEDY: &str = "Create the users varnish and vcache, with the same group, or name another user (-j unix,user=NAME), \
                      or use -j none to run everything as root.";

/// The users that the processes run as.
#[derive(Clone, Debug)]
pub struct Jail {
    name: &'static str,
    ids: Option<Ids>,
}

#[derive(Clone, Debug)]
struct Ids {
    manager: Credentials,
    worker: Credentials,
    /// Effective group at startup, which [`Jail::raise`] restores.
    own_gid: Gid,
}

/// Guard during whose lifetime the manager is root.
pub struct Raised<'a> {
    jail: &'a Jail,
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        // Failing to drop root must not go unnoticed: the jail exists to prevent running as root.
        assert!(self.jail.lower().is_ok(), "cannot give up root");
    }
}

fn unix(arguments: &[String]) -> Outcome<Ids> {
    if !geteuid().is_root() {
        return Err(Fault::usage("Unix Jail: Must be root."));
    }
    let (mut manager, mut worker) = (None, None);
    let known = |name: &str| {
        let user = users::user(name).or_else(|| numeric(name));
        user.ok_or_else(|| Fault::usage(format!("Unix jail: {name} user not found.")))
    };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("user", name)) => manager = Some(known(name)?),
            Some(("workuser", name)) => worker = Some(known(name)?),
            // No C compiler is run, so its group is only validated.
            Some(("ccgroup", name)) if users::group(name).is_some() => {}
            Some(("ccgroup", name)) => {
                return Err(Fault::usage(format!("Unix jail: {name} group not found.")));
            }
            _ => return Err(Fault::usage(format!("Unix jail: unknown sub-argument '{argument}'"))),
        }
    }
    let manager = match manager {
        Some(manager) => manager,
        None => known(DEFAULT_USER)?,
    };
    ids(&manager, worker)
}

/// Returns the user for a numeric id without a name. Its group has the same number.
fn numeric(name: &str) -> Option<User> {
    let uid = name.parse().ok().filter(|uid| *uid != 0)?;
    Some(User { name: name.to_owned(), uid, gid: uid })
}

/// Returns ids that are not in the user database, for a container without these users.
fn fallback_ids() -> Ids {
    let gid = FALLBACK_IDS.0;
    let user = |uid: u32| Credentials { uid, gid, groups: vec![gid] };
    Ids { manager: user(FALLBACK_IDS.0), worker: user(FALLBACK_IDS.1), own_gid: getgid() }
}

fn is_named(user: &User) -> bool {
    user.name.parse::<u32>().is_err()
}

/// Returns the ids of a user with all its groups, so that the process may use the files and sockets of each.
fn credentials(user: &User) -> Credentials {
    let groups = if is_named(user) { users::groups(user) } else { vec![user.gid] };
    Credentials { uid: user.uid, gid: user.gid, groups }
}

fn ids(manager: &User, worker: Option<User>) -> Outcome<Ids> {
    // A user without a name has no group that another user could share.
    let worker = worker.or_else(|| users::user(DEFAULT_WORK_USER).filter(|_| is_named(manager)));
    if let Some(worker) = worker.as_ref().filter(|worker| worker.gid != manager.gid) {
        return Err(Fault::usage(format!(
            "Unix jail: user {} and {} have different login groups",
            manager.name, worker.name
        )));
    }
    let manager = credentials(manager);
    let worker = worker.map_or_else(|| manager.clone(), |worker| credentials(&worker));
    Ok(Ids { manager, worker, own_gid: getgid() })
}

/// Validates the value of `transparent_hugepage=`, which has no effect here.
fn check_huge_pages(value: &str) -> Outcome<()> {
    match value {
        "ignore" | "enable" | "disable" | "try-disable" => Ok(()),
        _ => Err(Fault::usage(format!(
            "linux jail: unknown value '{value}' for argument transparent_hugepage."
        ))),
    }
}

impl Jail {
    /// Returns the jail that changes no user.
    pub fn none() -> Jail {
        Jail { name: "none", ids: None }
    }

    /// Parses `-j` and drops root. Without `-j`, chooses the strictest possible jail.
    pub fn enter(argument: Option<&str>) -> Outcome<Jail> {
        let jail = match argument {
            None => Jail::automatic()?,
            Some(argument) => Jail::parse(argument)?,
        };
        if let Some(ids) = &jail.ids {
            // Root's supplementary groups would remain after the change of user.
            let groups: Vec<Gid> = ids.manager.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            if set_thread_groups(&groups).is_err() {
                // A user namespace may lack some of them.
                let _ = set_thread_groups(&[Gid::from_raw(ids.manager.gid)]);
            }
        }
        jail.lower().map_err(|error| Fault::plain(format!("Cannot give up root: {error}. {REMEDY}")))?;
        Ok(jail)
    }

    /// Returns the jail for a start without `-j`. A start as root never leaves a process as root.
    fn automatic() -> Outcome<Jail> {
        if !geteuid().is_root() {
            return Ok(Jail::none());
        }
        let ids = match users::user(DEFAULT_USER) {
            Some(manager) => {
                ids(&manager, None).map_err(|fault| Fault::plain(format!("{}\n{REMEDY}", fault.text())))?
            }
            None => fallback_ids(),
        };
        Ok(Jail { name: "linux", ids: Some(ids) })
    }

    /// Returns a message about the users if they are not the expected ones.
    pub fn notice(&self) -> Option<String> {
        let worker = self.ids.as_ref().map_or(geteuid().as_raw(), |ids| ids.worker.uid);
        match worker {
            0 => Some(
                "Warning: the worker, which faces the network, runs as root. -j linux changes that."
                    .to_owned(),
            ),
            _ if worker == FALLBACK_IDS.1 => Some(format!(
                "There is no user {DEFAULT_USER}: the manager runs as uid {}, the worker as {worker}",
                FALLBACK_IDS.0
            )),
            _ => None,
        }
    }

    fn parse(argument: &str) -> Outcome<Jail> {
        let words = split(argument, Rules::LIST).map_err(|e| Fault::usage(format!("-j argument: {e}")))?;
        let Some((method, rest)) = words.split_first() else {
            return Err(Fault::usage("-j argument is empty"));
        };
        match method.as_str() {
            "none" if rest.is_empty() => Ok(Jail::none()),
            "none" => Err(Fault::usage("-jnone takes no arguments.")),
            "unix" => Ok(Jail { name: "unix", ids: Some(unix(rest)?) }),
            "linux" => {
                let mut others = Vec::new();
                for word in rest {
                    match word.strip_prefix("transparent_hugepage=") {
                        Some(value) => check_huge_pages(value)?,
                        None => others.push(word.clone()),
                    }
                }
                Ok(Jail { name: "linux", ids: Some(unix(&others)?) })
            }
            _ => Err(Fault::usage(format!("Unknown jail method \"{method}\""))),
        }
    }

    /// The name: `none`, `unix` or `linux`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the worker's user, if it differs from the user that started the manager.
    pub fn worker(&self) -> Option<Credentials> {
        self.ids.as_ref().map(|ids| ids.worker.clone())
    }

    /// Returns the manager's user while it is not root.
    pub fn manager(&self) -> Option<Credentials> {
        self.ids.as_ref().map(|ids| ids.manager.clone())
    }

    /// Makes the manager root during the lifetime of the guard.
    pub fn raise(&self) -> Raised<'_> {
        if let Some(ids) = &self.ids {
            // The real and saved ids are still root's, so this cannot fail.
            let _ = set_thread_res_uid(None::<Uid>, Uid::ROOT, None::<Uid>);
            let _ = set_thread_res_gid(None::<Gid>, ids.own_gid, None::<Gid>);
        }
        Raised { jail: self }
    }

    fn lower(&self) -> rustix::io::Result<()> {
        let Some(ids) = &self.ids else { return Ok(()) };
        if getegid().as_raw() != ids.manager.gid {
            set_thread_res_gid(None::<Gid>, Gid::from_raw(ids.manager.gid), None::<Gid>)?;
        }
        if geteuid().as_raw() != ids.manager.uid {
            set_thread_res_uid(None::<Uid>, Uid::from_raw(ids.manager.uid), None::<Uid>)?;
        }
        Ok(())
    }

    /// Makes the worker's user the owner of an open file or directory.
    pub fn give_to_worker(&self, file: impl std::os::fd::AsFd, complain: &Complain) {
        if let Some(ids) = &self.ids {
            let _root = self.raise();
            let owner = (Some(Uid::from_raw(ids.worker.uid)), Some(Gid::from_raw(ids.worker.gid)));
            if let Err(error) = rustix::fs::fchown(file, owner.0, owner.1) {
                complain
                    .report(Level::Error, &format!("Cannot hand a file over to the worker's user: {error}"));
            }
        }
    }

    /// Makes the manager's user the owner of an open directory, which other users than those of its group cannot read.
    pub fn give_to_manager(&self, directory: impl std::os::fd::AsFd) -> std::io::Result<()> {
        let Some(ids) = &self.ids else { return Ok(()) };
        let _root = self.raise();
        let owner = (Some(Uid::from_raw(ids.manager.uid)), Some(Gid::from_raw(ids.manager.gid)));
        rustix::fs::fchown(&directory, owner.0, owner.1)?;
        Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o750))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_without_names_are_never_root() {
        assert_eq!(numeric("1234").map(|user| (user.uid, user.gid)), Some((1234, 1234)));
        assert_eq!(numeric("0"), None);
        assert_eq!(numeric("nosuchuser"), None);
        let fallback_ids = fallback_ids();
        assert_ne!(fallback_ids.manager.uid, fallback_ids.worker.uid);
        assert_eq!(fallback_ids.manager.gid, fallback_ids.worker.gid);
        let alone = numeric("1234").and_then(|user| ids(&user, None).ok());
        let alone = alone.map(|ids| ids.worker);
        assert_eq!(alone, Some(Credentials { uid: 1234, gid: 1234, groups: vec![1234] }));
    }
}
