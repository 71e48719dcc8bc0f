//! The account at an ACME server: read from the folder, or created and written to it.

use instant_acme::{Account, AccountBuilder, AccountCredentials, NewAccount};

use crate::api::{block_on, with_nonces};
use crate::external_account::ExternalAccount;
use crate::fault::Fault;
use crate::folder::{self, Folder};
use crate::link::Link;
use crate::rights::Rights;
use crate::settings::Settings;
use crate::transport::{Transport, Waits};

fn builder(settings: &Settings, waits: &Waits) -> Result<AccountBuilder, Fault> {
    let transport = Transport::new(&settings.trusted, waits.clone()).map_err(Fault::new)?;
    Ok(Account::builder_with_http(Box::new(transport)))
}

/// Reads the account from the folder. A file that cannot be used is set aside, and reported.
fn stored(folder: &Folder, rights: &Rights, link: &Link) -> Result<Option<AccountCredentials>, Fault> {
    let path = folder.account();
    let read = rights.run(|| folder::read(&path));
    let Some(bytes) = read.map_err(|error| Fault::new(format_args!("{}: {error}", path.display())))? else {
        return Ok(None);
    };
    match serde_json::from_slice(&bytes) {
        Ok(credentials) => Ok(Some(credentials)),
        Err(error) => {
            set_aside((folder, rights), link, &format_args!("contains no account ({error})"))?;
            Ok(None)
        }
    }
}

/// Sets the file with the account aside, and reports the reason. The next [`open`] makes a new account.
pub fn set_aside(
    (folder, rights): (&Folder, &Rights),
    link: &Link,
    why: &dyn std::fmt::Display,
) -> Result<(), Fault> {
    let path = folder.account();
    let aside = rights.run(|| folder::set_aside(&path));
    let aside = aside.map_err(|error| Fault::new(format_args!("{}: {error}", path.display())))?;
    let (path, aside) = (path.display(), aside.display());
    link.report(format!("{path} {why}: renamed to {aside}; a new account is made"), true);
    Ok(())
}

/// Returns the account, which is created if the folder has none.
pub fn open(
    settings: &Settings,
    (folder, rights): (&Folder, &Rights),
    link: &Link,
    waits: &Waits,
) -> Result<Account, Fault> {
    if let Some(credentials) = stored(folder, rights, link)? {
        let account = builder(settings, waits)?.from_credentials(credentials);
        return block_on(account).map_err(|error| Fault::from(error).during("account"));
    }
    let contact: Vec<&str> = settings.contacts.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let external = settings.external_account.as_ref().map(ExternalAccount::key);
    let url = settings.directory.url();
    let mut builders = Vec::new();
    for _ in 0..crate::api::NONCE_TRIES {
        builders.push(builder(settings, waits)?);
    }
    let created = with_nonces(|| {
        let builder = builders.pop().ok_or(instant_acme::Error::Str("no nonce was accepted"))?;
        block_on(builder.create(&new, url.to_owned(), external.as_ref()))
    });
    let (account, credentials) = created.map_err(|error| Fault::from(error).during("new account"))?;
    let text = serde_json::to_vec(&credentials).map_err(Fault::new)?;
    let path = folder.account();
    let written = rights.run(|| folder::write(&path, &text));
    written.map_err(|error| Fault::new(format_args!("cannot write {}: {error}", path.display())))?;
    link.report(format!("account created at {url}"), false);
    Ok(account)
}
