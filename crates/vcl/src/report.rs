//! The diagnostics of a compilation, and the one that is being written.

use crate::diagnostics::{Diagnostic, Piece, Place, Severity};
use crate::symbols::TokenId;

/// An error that only Varnish's C compiler finds, with its first token and the one after its last.
pub(crate) type LateError = (String, TokenId, TokenId);

pub(crate) struct Report {
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    /// The number of folded entries of ACLs.
    folds: usize,
    draft: Diagnostic,
    focus: Option<Place>,
    late_error: Option<LateError>,
}

impl Report {
    pub fn new() -> Report {
        Report {
            diagnostics: Vec::new(),
            errors: 0,
            folds: 0,
            draft: Diagnostic::new(Severity::Error),
            focus: None,
            late_error: None,
        }
    }

    pub fn errors(&self) -> usize {
        self.errors
    }

    pub fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.diagnostics
    }

    /// Counts a folded entry of an ACL. Returns whether at most `most` were folded.
    pub fn may_show_fold(&mut self, most: usize) -> bool {
        self.folds = self.folds.saturating_add(1);
        self.folds <= most
    }

    /// Returns the number of folded entries beyond `most`.
    pub fn folds_beyond(&self, most: usize) -> usize {
        self.folds.saturating_sub(most)
    }

    /// Adds text to the current diagnostic.
    pub fn add_text(&mut self, text: &str) {
        if let Some(Piece::Text(last)) = self.draft.pieces.last_mut() {
            last.push_str(text);
        } else {
            self.draft.pieces.push(Piece::Text(text.to_owned()));
        }
    }

    /// Adds a location to the current diagnostic.
    pub fn add_place(&mut self, place: Place) {
        self.draft.pieces.push(Piece::Place(place));
    }

    /// Adds a hint to the current diagnostic, unless it has one.
    pub fn hint(&mut self, hint: String) {
        self.draft.hint.get_or_insert(hint);
    }

    /// Records a location for the pretty rendering that the traditional text does not contain.
    pub fn look_at(&mut self, place: Place) {
        self.focus = Some(place);
    }

    /// Completes the current diagnostic as an error.
    pub fn finish_error(&mut self) {
        let mut diagnostic = self.take_draft();
        crate::hints::improve(&mut diagnostic);
        self.diagnostics.push(diagnostic);
        self.errors += 1;
    }

    /// Completes the current diagnostic as a warning.
    pub fn finish_note(&mut self) {
        let mut diagnostic = self.take_draft();
        diagnostic.severity = Severity::Warning;
        self.diagnostics.push(diagnostic);
    }

    fn take_draft(&mut self) -> Diagnostic {
        let mut diagnostic = std::mem::replace(&mut self.draft, Diagnostic::new(Severity::Error));
        let focus = self.focus.take();
        diagnostic.focus = focus.filter(|_| diagnostic.place().is_none());
        diagnostic
    }

    /// Records the first error that only Varnish's C compiler finds. It is reported if there is no other.
    pub fn note_late_error(&mut self, error: LateError) {
        self.late_error.get_or_insert(error);
    }

    pub fn take_late_error(&mut self) -> Option<LateError> {
        self.late_error.take()
    }
}
