//! The filters between the origin's response and storage: their selection and their reports.

use std::borrow::Cow;

use lacquer_cache::Object;
use lacquer_filters::esi::{Esi, EsiGzip, EsiNote, Options};
use lacquer_filters::{Chain, Filter as BodyFilter, Gunzip, Gzip, Report, TestGunzip};
use lacquer_flow::filters::{self, Coding, Fetched, Recoder};
use lacquer_http::{BodyStatus, SessClose, header_table as h};
use lacquer_params::bits::FeatureBits;
use lacquer_shm::{Numbering, Tag};

use super::Fetch;
use crate::emulated::workspace_costs;
use crate::object_attributes;
use crate::task::TaskParts;

impl Fetch {
    /// Returns the names of the filters: `beresp.filters` if VCL has set it, else those that the encoding and VCL's
    /// flags require.
    pub fn filter_list(&self) -> Cow<'static, [u8]> {
        if let Some(list) = self.task.ws().get_opt(self.response.filters) {
            return Cow::Owned(list.to_vec());
        }
        let list = filters::into_storage(Fetched {
            coding: self.coding(),
            has_gzip_support: self.task.params().http_gzip_support,
            do_gzip: self.response.do_gzip,
            do_gunzip: self.response.do_gunzip,
            do_esi: self.attempt.do_esi,
        });
        Cow::Borrowed(list.as_bytes())
    }

    fn coding(&self) -> Coding {
        Coding::of(self.response.http.get(self.task.ws(), h::CONTENT_ENCODING))
    }

    /// Allocates workspace for the filters, and for the one that reads the body from the connection. Returns false if
    /// there is not enough.
    pub(super) fn reserve_filter_space(&mut self, list: &[u8], no_body: bool) -> bool {
        let named = lacquer_filters::names(list).count();
        let filters = named + usize::from(!no_body);
        let has_room = workspace_costs::charge(self.task.ws_mut(), filters * workspace_costs::FILTER);
        if !has_room {
            self.fetch_error("Workspace overflow");
        }
        has_room
    }

    /// Creates the filters by name, and changes the head accordingly. The error is the reason for closing the
    /// origin's connection.
    pub(super) fn filters_from(&mut self, list: &[u8]) -> Result<Chain, SessClose> {
        self.task.log_mut().put(Tag::Filters, list);
        let mut filters: Vec<Box<dyn BodyFilter>> = Vec::new();
        for (name, rest) in lacquer_filters::names(list) {
            match name {
                b"gunzip" => filters.extend(self.recoder(Recoder::Gunzip)),
                b"gzip" => filters.extend(self.recoder(Recoder::Gzip)),
                b"testgunzip" => filters.extend(self.recoder(Recoder::TestGunzip)),
                b"esi" | b"esi_gzip" => filters.push(self.esi_filter(name == b"esi_gzip")?),
                _ => {
                    self.fetch_error(&crate::req_filters::unknown(rest));
                    return Err(SessClose::Overload);
                }
            }
        }
        Ok(Chain::new(filters, self.task.params().gzip_buffer))
    }

    /// Creates a filter, unless it would have no effect.
    fn recoder(&mut self, recoder: Recoder) -> Option<Box<dyn BodyFilter>> {
        if !filters::has_work(recoder, self.coding(), self.response.http.status()) {
            return None;
        }
        let services = self.task.services().clone();
        let c = services.counters();
        Some(match recoder {
            Recoder::Gunzip => {
                c.n_gunzip.add(1);
                self.change_encoding();
                self.attempt.gzipped = false;
                Box::new(Gunzip::new())
            }
            Recoder::Gzip => {
                c.n_gzip.add(1);
                self.change_encoding();
                self.declare_gzip();
                Box::new(Gzip::new(self.task.params().gzip_level))
            }
            Recoder::TestGunzip => {
                c.n_test_gunzip.add(1);
                self.beresp_headers().vary_on_encoding();
                self.attempt.gzipped = true;
                Box::new(TestGunzip::new())
            }
        })
    }

    fn esi_filter(&mut self, gzip: bool) -> Result<Box<dyn BodyFilter>, SessClose> {
        if self.response.http.status() == 206 {
            self.task.log_mut().put(Tag::VCL_Error, b"Attempted ESI on partial (206) response");
            self.fetch_error("Fetch pipeline failed to open");
            return Err(SessClose::RxBody);
        }
        let features = self.task.params().feature;
        let options = Options {
            ignore_https: features.has(FeatureBits::ESI_IGNORE_HTTPS),
            disable_xml_check: features.has(FeatureBits::ESI_DISABLE_XML_CHECK),
            ignore_other_elements: features.has(FeatureBits::ESI_IGNORE_OTHER_ELEMENTS),
            remove_bom: features.has(FeatureBits::ESI_REMOVE_BOM),
        };
        self.attempt.has_esi = true;
        let url = self.request.http.url(self.task.ws()).to_vec();
        if !gzip {
            return Ok(Box::new(Esi::new(&url, options)));
        }
        self.task.services().counters().n_gzip.add(1);
        self.change_encoding();
        self.declare_gzip();
        Ok(Box::new(EsiGzip::new(&url, options, self.task.params().gzip_level)))
    }

    /// Changes the head for a body that is stored in another encoding.
    fn change_encoding(&mut self) {
        self.beresp_headers().change_encoding();
        self.attempt.encoding_changed = true;
    }

    fn declare_gzip(&mut self) {
        let mut headers = self.beresp_headers();
        headers.add(h::CONTENT_ENCODING, b"gzip");
        headers.vary_on_encoding();
        self.attempt.gzipped = true;
    }

    /// Logs the filters' report, and stores with the object the data that delivery needs.
    pub(super) fn take_report(&mut self, report: &Report, framing: BodyStatus, object: &Object) {
        let TaskParts { services, log, .. } = self.task.parts();
        let c = services.counters();
        for note in &report.notes {
            match note {
                EsiNote::Error(..) => c.esi_errors.add(1),
                EsiNote::Warning(..) => c.esi_warnings.add(1),
                EsiNote::Untouched(_) => {}
            }
            match log.numbering() {
                Numbering::Varnish7 => log.put_fmt(Tag::ESI_xmlerror, format_args!("{note}")),
                Numbering::Varnish9 => log.put_fmt(Tag::ESI_xmlerror, format_args!("{note:#}")),
            }
        }
        self.task.log_filtered_in(report);
        self.task.log_received(
            framing.receiver(),
            self.exchange.account.beresp_reads,
            self.exchange.account.beresp_body,
        );
        let extra = object_attributes::of(report.unpacked, report.program.as_deref());
        if !extra.is_empty() {
            object.set_extra(&extra);
        }
    }
}
