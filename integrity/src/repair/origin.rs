//! Where the files came from.

use super::RepairSettings;
use crate::error::IntegrityError;
use crate::http::{Address, Client, encode_path};
use crate::record::FetchRecord;

/// A place that has the files.
#[derive(Debug)]
pub(super) struct Origin {
    base: Address,
    pub(super) client: Client,
}

impl Origin {
    /// The address given, else the commit that was fetched.
    ///
    /// # Errors
    ///
    /// Neither, or what is no address.
    pub(super) fn new(settings: &RepairSettings) -> Result<Self, IntegrityError> {
        let base = match &settings.from {
            Some(from) => Address::base(from)?,
            None => {
                let record = FetchRecord::read(&settings.model)?;
                let record = record.ok_or_else(|| IntegrityError::NoOrigin {
                    directory: settings.model.clone(),
                })?;
                let path = format!("{}/resolve/{}", record.repo, record.commit);
                Address::base(&record.endpoint)?.join(&path)
            }
        };
        let endpoint = Address::base(&settings.endpoint)?;
        Ok(Self {
            base,
            client: Client::new(&settings.http, Some(endpoint), settings.token.clone()),
        })
    }

    /// The address of a file.
    pub(super) fn file(&self, name: &str) -> Address {
        self.base.join(&encode_path(name))
    }

    /// The address, to show.
    pub(super) fn shown(&self) -> String {
        self.base.to_string()
    }
}
