//! The listeners and certificates of `-A` and `-a`, before the first worker starts.

use std::collections::HashSet;
use std::sync::Arc;

use lacquer_tls::{FrontendSetup, Protocols, Settings};

use super::acme::{self, Plan};
use super::catalogue::{Catalogue, Wanted};
use super::config::{self, Certificate, Config, Frontend, Options};
use super::files::{self, Recent};
use super::refusal::Refusal;
use crate::complain::Complain;
use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::listen::Listeners;

const DEFAULT_PORT: &str = "443";

/// The certificates that the options name, which are loaded when all options are known.
#[derive(Debug, Default)]
pub struct Startup {
    catalogue: Catalogue,
    wanted: Vec<(Wanted, Place)>,
    names: u32,
}

/// A place in a file of `-A`.
#[derive(Clone, Debug)]
struct Place {
    path: Arc<str>,
    line: usize,
}

impl Place {
    /// Adds the place to a fault, and the setting there.
    fn fault(&self, setting: &str, why: &str) -> Fault {
        let why = why.trim().trim_start_matches("-A: ");
        Fault::plain(format!("-A: {setting}: {why} ({}:{})", self.path, self.line))
    }
}

/// Returns the argument of `-a` for the address of a listener.
fn address(frontend: &Frontend) -> String {
    if let Some(address) = &frontend.address {
        return address.strip_prefix('*').filter(|rest| rest.starts_with(':')).unwrap_or(address).to_owned();
    }
    let port = frontend.port.as_deref().unwrap_or(DEFAULT_PORT);
    match frontend.host.as_deref() {
        None | Some("*") => format!(":{port}"),
        Some(path) if path.starts_with(['/', '@']) => path.to_owned(),
        Some(host) if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{host}]:{port}"),
        Some(host) => format!("{host}:{port}"),
    }
}

/// Returns whether the listener has HTTP/3 too: by its own setting, or that of the file. Fails if it cannot have it.
fn has_http3(frontend: &Frontend, file: &Options) -> Result<bool, String> {
    let own = &frontend.options;
    if !own.http3.or(file.http3).unwrap_or_default() {
        return Ok(false);
    }
    let address = address(frontend);
    if address.starts_with(['/', '@']) {
        return Err(format!("h3 requires an IP address, and not a path ({address})"));
    }
    if !own.protocols.or(file.protocols).has_tls13() {
        return Err(format!("h3 requires TLSv1.3, which tls-protos excludes ({address})"));
    }
    Ok(true)
}

/// Returns the settings of a certificate: its own, or those of its listener, or those of the file.
fn settings(own: &Options, [frontend, file]: [Option<&Options>; 2]) -> Settings {
    let all = || [Some(own), frontend, file].into_iter().flatten();
    let text =
        |field: fn(&Options) -> &Option<String>| all().find_map(|o| field(o).clone()).unwrap_or_default();
    Settings {
        protocols: Protocols::default(),
        ciphers: text(|options| &options.ciphers),
        ciphersuites: text(|options| &options.ciphersuites),
        groups: text(|options| &options.groups),
        prefer_server_ciphers: all().find_map(|options| options.prefer_server_ciphers).unwrap_or_default(),
    }
}

impl Startup {
    /// Reads a file of `-A`, and binds its listeners.
    pub fn configure(&mut self, path: &str, listeners: &mut Listeners, jail: &Jail) -> Outcome<()> {
        let text = {
            let _root = jail.raise();
            std::fs::read_to_string(path)
        };
        let text = text
            .map_err(|error| Fault::usage(format!("-A: Cannot open '{path}': {}", os_error_text(&error))))?;
        let mut config = config::parse(&text).map_err(|fault| Fault::usage(fault.text(path)))?;
        if config.frontends.is_empty() {
            let what = "No frontend listen endpoint definitions found in configuration file";
            return Err(Fault::usage(format!("-A: {what} {path}")));
        }
        let path: Arc<str> = path.into();
        self.catalogue.set_protocols(config.options.protocols);
        let certificates = std::mem::take(&mut config.certificates);
        self.want(&path, certificates, None, [None, Some(&config.options)]);
        for frontend in std::mem::take(&mut config.frontends) {
            let place = Place { path: path.clone(), line: frontend.line };
            self.listen(&place, frontend, &config, listeners, jail)?;
        }
        Ok(())
    }

    fn listen(
        &mut self,
        place: &Place,
        frontend: Frontend,
        config: &Config,
        listeners: &mut Listeners,
        jail: &Jail,
    ) -> Outcome<()> {
        let name = frontend.name.clone().unwrap_or_else(|| {
            self.names += 1;
            format!("tls{}", self.names - 1)
        });
        let mut argument = format!("{name}={},TLS", address(&frontend));
        for names in &frontend.acme {
            if names.contains(',') {
                return Err(place.fault("acme", &format!("\"{names}\": separate names by blanks")));
            }
            let names: Vec<&str> = names.split_whitespace().collect();
            argument.extend([",acme=", &names.join(";")]);
        }
        if has_http3(&frontend, &config.options).map_err(|why| place.fault("frontend", &why))? {
            argument.push_str(",h3");
        }
        listeners.add_of_file(&argument, jail).map_err(|fault| place.fault("frontend", fault.text()))?;
        let abort = frontend.options.sni_nomatch_abort.or(config.options.sni_nomatch_abort);
        let clients = frontend.options.clients.or(&config.options.clients);
        let setup = FrontendSetup {
            name,
            protocols: frontend.options.protocols,
            sni_nomatch_abort: abort.unwrap_or_default(),
            match_global: frontend.match_global.unwrap_or(frontend.certificates.is_empty()),
            clients: clients.load(jail).map_err(|why| place.fault("frontend", &why))?,
        };
        let at = self.catalogue.add_frontend(setup, clients).map_err(|why| place.fault("frontend", &why))?;
        let options = [Some(&frontend.options), Some(&config.options)];
        self.want(&place.path, frontend.certificates, Some(at), options);
        Ok(())
    }

    fn want(
        &mut self,
        path: &Arc<str>,
        certificates: Vec<Certificate>,
        frontend: Option<u32>,
        [options, file]: [Option<&Options>; 2],
    ) {
        let last = certificates.len().saturating_sub(1);
        for (at, Certificate { id, paths, options: own, line }) in certificates.into_iter().enumerate() {
            let settings = Arc::new(settings(&own, [options, file]));
            // Thousands of certificates have the same settings.
            let settings = match self.wanted.last() {
                Some((other, _)) if other.settings == settings => other.settings.clone(),
                _ => settings,
            };
            let place = Place { path: path.clone(), line };
            self.wanted.push((Wanted { id, frontend, paths, settings, default: at == last }, place));
        }
    }

    /// Loads the certificates. `listeners` has all sockets; those of `-a` have no settings in a file. Names must be new
    /// if `unique` is set.
    pub fn finish(
        self,
        listeners: &Listeners,
        unique: bool,
        plan: Option<&Plan>,
        jail: &Jail,
        complain: &Complain,
    ) -> Outcome<Catalogue> {
        let Startup { mut catalogue, wanted, .. } = self;
        for (name, clients) in listeners.tls_names() {
            let setup = FrontendSetup {
                name: name.to_owned(),
                protocols: Protocols::default(),
                sni_nomatch_abort: true,
                match_global: true,
                clients: clients.load(jail).map_err(|why| Fault::usage(format!("-a: {why}")))?,
            };
            catalogue
                .add_frontend(setup, clients.clone())
                .map_err(|why| Fault::usage(format!("-a: {why}")))?;
        }
        let mut ids = HashSet::new();
        let mut taken = unique.then(|| catalogue.taken());
        let mut checked: Option<Arc<Settings>> = None;
        let mut recent = Recent::default();
        for (wanted, place) in wanted {
            let fault = |refusal: Refusal| place.fault("pem-file", &refusal.text);
            if let Some(id) = &wanted.id
                && !ids.insert(id.clone())
            {
                return Err(place.fault("pem-file", &format!("Certificate ID '{id}' already exists.")));
            }
            if checked.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &wanted.settings)) {
                wanted.settings.check().map_err(|why| place.fault("pem-file", &why))?;
                checked = Some(wanted.settings.clone());
            }
            let loaded = files::load(&wanted.paths, jail, &mut recent).map_err(fault)?;
            super::report_validity(complain, &wanted.paths.certificate, &loaded);
            catalogue.stage(wanted, loaded, taken.as_mut()).map_err(fault)?;
        }
        for (names, path) in plan.map(|plan| plan.stored(jail)).unwrap_or_default() {
            let wanted = acme::wanted(&names, path);
            // The client obtains another one if the file cannot be used.
            if let Ok(loaded) = files::load(&wanted.paths, jail, &mut recent) {
                catalogue.stage(wanted, loaded, None).map_err(|refusal| Fault::plain(refusal.text))?;
            }
        }
        catalogue.commit();
        Ok(catalogue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http3(text: &str) -> Vec<Result<bool, String>> {
        let config = config::parse(text).unwrap();
        let frontends = config.frontends.iter();
        frontends.map(|one| has_http3(one, &config.options)).collect()
    }

    #[test]
    fn http3_is_a_setting_of_a_listener_or_of_the_file() {
        let on = "frontend = { h3 = on } frontend = { port = \"8443\" } frontend = \"*:9443\"";
        assert_eq!(http3(on), [Ok(true), Ok(false), Ok(false)]);
        let off = "h3 = on frontend = { h3 = off } frontend = { port = \"8443\" } frontend = \"*:9443\"";
        assert_eq!(http3(off), [Ok(false), Ok(true), Ok(true)]);
    }

    #[test]
    fn http3_that_is_impossible_is_refused() {
        for (text, why) in [
            ("frontend = { host = \"/run/tls.sock\" h3 = on }", "h3 requires an IP address, and not a path"),
            ("frontend = { host = \"@tls\" h3 = on }", "requires an IP address"),
            ("frontend = { tls-protos = TLSv1.2 h3 = on }", "h3 requires TLSv1.3, which tls-protos excludes"),
            ("tls-protos = TLSv1.2 frontend = { h3 = on }", "requires TLSv1.3"),
        ] {
            let found = http3(text);
            assert!(matches!(&found[..], [Err(text)] if text.contains(why)), "{text}: {found:?}");
        }
        assert_eq!(http3("tls-protos = TLSv1.2 frontend = { tls-protos = TLSv1.3 h3 = on }"), [Ok(true)]);
    }
}
