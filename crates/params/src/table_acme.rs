//! Parameters of certificates that the daemon obtains itself (ACME). They are read when the daemon starts.

macro_rules! acme_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

acme_ca_file: Text = "" { }
    "File with the authorities, in PEM, that the ACME server's own certificate is verified with. Empty stands for the \
     system's trust store.\n\nRead when the daemon starts.";
acme_challenge: Text = "auto" { }
    "How the ACME server verifies that a name is ours: http-01 (a page on port 80), tls-alpn-01 (a handshake on port \
     443), dns-01 (a DNS record, see acme_dns_hook) or auto: http-01 if there is a listener without TLS, and \
     tls-alpn-01 otherwise and after a failure. Wildcards always use dns-01.\n\nRead when the daemon starts.";
acme_contact: Text = "" { }
    "Mail addresses for the account at the ACME server, separated by commas. Some servers require one, and warn of \
     certificates that expire.\n\nRead when the daemon starts.";
acme_directory: Text = "letsencrypt" { }
    "The ACME server: letsencrypt, letsencrypt-staging (for tests, without strict limits; no browser trusts its \
     certificates) or the URL of a directory. Each server has its own account and certificates.\n\nRead when the \
     daemon starts.";
acme_dns_hook: Text = "" { }
    "Program that adds and removes DNS records for dns-01. It is called with add or remove, the name of the TXT record \
     and its value, as the manager's user. It ends when the name servers of the zone have the record.\n\nRead when \
     the daemon starts.";
acme_external_account: Text = "" { }
    "File with the key of an external account, for authorities that issue certificates to their customers only: the \
     key identifier and the HMAC key in base64url, separated by a blank or a line end. It is used when the account at \
     the ACME server is created.\n\nRead when the daemon starts.";
acme_folder: Text = "/var/lib/lacquer/acme" { }
    "Folder for the account and the certificates, which survive restarts there. Only root may \
     enter it, or the user who starts a daemon without root.\n\nRead when the daemon starts.";
acme_on_demand: Text = "" { }
    "File with names, one in each line, whose certificates are obtained when a client first asks for them. A name may \
     begin with *., which stands for one label. No other names get certificates.\n\nRead when the daemon starts, \
     when the file has changed, and by tls.cert.reload.";
    } };
}
