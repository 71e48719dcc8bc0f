//! `--admin` and `--secret`: the address at which a running site is managed from elsewhere, and its secret.

use std::path::Path;
use std::process::Command;

use crate::args::Values;
use crate::failure::Failure;
use crate::listen::Listen;

/// The address of a port without a host: only this machine reaches it.
const LOCAL: &str = "127.0.0.1";

/// The management port of a site.
pub struct Admin {
    listen: Listen,
    secret: Option<String>,
}

impl Admin {
    /// Returns the management port that the options name, and checks that it is free.
    pub fn of(values: &Values) -> Result<Option<Admin>, Failure> {
        let secret = values.one("secret").map(str::to_owned);
        let Some(text) = values.one("admin") else { return Ok(None) };
        let listen = parse(text)?;
        if let Some(file) = secret.as_deref().filter(|file| !Path::new(file).is_file()) {
            let hint = format!("(umask 077; head -c 32 /dev/urandom | base64 > {file}) writes one");
            return Err(Failure::new(format_args!("--secret {file}: there is no such file")).hint(hint));
        }
        listen.check_free("admin", "ports below 1024 are reserved for root; try --admin 6082")?;
        Ok(Some(Admin { listen, secret }))
    }

    pub fn add_arguments(&self, command: &mut Command) {
        command.arg("-T").arg(self.listen.argument());
        if let Some(file) = &self.secret {
            command.arg("-S").arg(file);
        }
    }

    /// Returns how the port is used. `name` is the working directory.
    pub fn note(&self, name: &str) -> String {
        let address = self.listen.argument();
        let secret = self.secret.clone().unwrap_or_else(|| format!("{name}/_.secret"));
        format!("It is managed with  lacquer param --address {address} --secret {secret}\n")
    }
}

/// Parses the value of `--admin`. A port alone is one of this machine.
pub fn parse(text: &str) -> Result<Listen, Failure> {
    let has_host = text.rsplit_once(':').is_some_and(|(host, _)| !host.is_empty());
    let place = if has_host { text.to_owned() } else { format!("{LOCAL}:{}", text.trim_start_matches(':')) };
    let listen = Listen::parse("admin", &place).ok();
    listen.filter(|listen| listen.port().is_some() && listen.argument() == place).ok_or_else(|| {
        Failure::new(format_args!("--admin {text}: it is not HOST:PORT"))
            .hint("write a port, or an address of this machine such as 10.0.0.1:6082")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_local() {
        let shown = |text| parse(text).map(|listen| listen.argument()).ok();
        assert_eq!(shown("6082").as_deref(), Some("127.0.0.1:6082"));
        assert_eq!(shown(":6082").as_deref(), Some("127.0.0.1:6082"));
        assert_eq!(shown("10.0.0.1:6082").as_deref(), Some("10.0.0.1:6082"));
        assert_eq!(shown("[::1]:6082").as_deref(), Some("[::1]:6082"));
        for wrong in ["", "x", "h:0", "h:99999", "/socket", "h:6082,proxy"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }
}
