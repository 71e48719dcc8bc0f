//! `--web`: the admin listener of a running site, with the dashboard, metrics and REST.

use std::process::Command;

use crate::args::Values;
use crate::failure::Failure;
use crate::listen::Listen;

/// The address of a port without a host: only this machine reaches it.
const LOCAL: &str = "127.0.0.1";

/// The admin listener of a site.
pub struct Web {
    /// The socket, without the options of `-w`.
    listen: Listen,
    argument: String,
}

impl Web {
    /// Returns the listener that the option names, and checks that its address is free.
    pub fn of(values: &Values) -> Result<Option<Web>, Failure> {
        let Some(text) = values.one("web") else { return Ok(None) };
        let web = parse(text)?;
        web.listen.check_free("web", "ports below 1024 are reserved for root; try --web 6083")?;
        Ok(Some(web))
    }

    pub fn add_arguments(&self, command: &mut Command) {
        command.arg("-w").arg(&self.argument);
    }

    /// Returns how the listener is used. `name` is the working directory.
    pub fn note(&self, name: &str) -> String {
        let token = self.argument.split(',').find_map(|field| field.strip_prefix("token="));
        let token = token.map_or_else(|| format!("{name}/_.token"), str::to_owned);
        match self.listen.port() {
            Some(_) => {
                let has_tls = self.argument.split(',').any(|field| field.starts_with("cert="));
                let scheme = if has_tls { "https" } else { "http" };
                format!(
                    "The dashboard is    {scheme}://{}/ ; its token is in {token}\n",
                    self.listen.argument()
                )
            }
            None => format!("The dashboard's socket is {}\n", self.listen.argument()),
        }
    }
}

/// Parses the value of `--web`: an argument of `lacquerd -w`. A port alone is one of this machine.
pub fn parse(text: &str) -> Result<Web, Failure> {
    let (place, options) =
        text.split_once(',').map_or((text, String::new()), |(place, rest)| (place, format!(",{rest}")));
    let has_host = place.starts_with('/') || place.rsplit_once(':').is_some_and(|(host, _)| !host.is_empty());
    let place =
        if has_host { place.to_owned() } else { format!("{LOCAL}:{}", place.trim_start_matches(':')) };
    let listen = Listen::parse("web", &place).ok().filter(|listen| listen.argument() == place);
    let listen = listen.ok_or_else(|| {
        Failure::new(format_args!("--web {text}: it is neither HOST:PORT nor a path"))
            .hint("write a port, an address such as 10.0.0.1:6083,token=FILE, or /path/socket")
    })?;
    Ok(Web { listen, argument: format!("{place}{options}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_local() {
        let shown = |text| parse(text).map(|web| web.argument).ok();
        assert_eq!(shown("6083").as_deref(), Some("127.0.0.1:6083"));
        assert_eq!(shown(":6083,token=/t").as_deref(), Some("127.0.0.1:6083,token=/t"));
        assert_eq!(shown("/run/socket").as_deref(), Some("/run/socket"));
        assert!(
            parse("6083").is_ok_and(|web| web
                .note("/n")
                .contains("http://127.0.0.1:6083/ ; its token is in /n/_.token"))
        );
        assert!(parse("h:1,cert=/c").is_ok_and(|web| web.note("/n").contains("https://h:1/")));
        for wrong in ["", "x", "h:0", "h:99999"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }
}
