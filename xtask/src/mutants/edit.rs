//! Mistakes as edits of a text: each puts something around a piece of code, and all of them are in the text at once.

use std::cmp::Reverse;
use std::ops::Range;

/// One mistake. The text around the piece asks whether this mistake is on, and is without effect if not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) id: u32,
    /// Where, from the workspace's folder.
    pub(crate) file: String,
    pub(crate) line: usize,
    /// The function around it.
    pub(crate) function: String,
    /// Its bytes, and those of the piece; nothing is replaced where these are none.
    pub(crate) within: Range<usize>,
    pub(crate) piece: Range<usize>,
    pub(crate) before: String,
    pub(crate) after: &'static str,
    /// The piece on one line, and what stands for it.
    pub(crate) was: String,
    pub(crate) now: String,
}

impl Mutant {
    /// In words that stay the same when the code around changes.
    pub(crate) fn change(&self) -> String {
        format!("{} → {}", self.was, self.now)
    }
}

/// A text with its mistakes in it.
#[derive(Debug, Default)]
pub(crate) struct Edited {
    pub(crate) text: String,
    /// Where each mistake is in the new text, with what is around the piece; outer ones first.
    spans: Vec<(Range<usize>, u32)>,
    /// Where pieces of the old text begin in the new one, and in the old.
    moved: Vec<(usize, usize)>,
}

/// Puts the mistakes into the text.
pub(crate) fn apply(source: &str, mutants: &[&Mutant]) -> Edited {
    let mut sorted = mutants.to_vec();
    // Nothing but an empty piece is put before what begins at the same place; then the outer before the inner.
    sorted.sort_by_key(|mutant| (mutant.piece.start, !mutant.piece.is_empty(), Reverse(mutant.piece.end), mutant.id));
    let mut edited = Edited::default();
    let mut open: Vec<(&Mutant, usize)> = Vec::new();
    let mut at = 0;
    for mutant in sorted {
        while let Some((outer, index)) = open.pop_if(|(outer, _)| outer.piece.end <= mutant.piece.start) {
            edited.copy(source, &mut at, outer.piece.end);
            edited.close(outer, index);
        }
        edited.copy(source, &mut at, mutant.piece.start);
        let index = edited.open(mutant);
        if mutant.piece.is_empty() { edited.close(mutant, index) } else { open.push((mutant, index)) }
    }
    while let Some((outer, index)) = open.pop() {
        edited.copy(source, &mut at, outer.piece.end);
        edited.close(outer, index);
    }
    edited.copy(source, &mut at, source.len());
    edited
}

impl Edited {
    fn copy(&mut self, source: &str, at: &mut usize, to: usize) {
        if *at < to {
            self.moved.push((self.text.len(), *at));
            self.text.push_str(&source[*at..to]);
            *at = to;
        }
    }

    fn open(&mut self, mutant: &Mutant) -> usize {
        let start = self.text.len();
        self.text.push_str(&mutant.before);
        self.spans.push((start..start, mutant.id));
        self.spans.len() - 1
    }

    fn close(&mut self, mutant: &Mutant, index: usize) {
        self.text.push_str(mutant.after);
        self.spans[index].0.end = self.text.len();
    }

    /// The innermost mistake around these bytes of the new text.
    pub(crate) fn around(&self, bytes: &Range<usize>) -> Option<u32> {
        let around = |(span, _): &&(Range<usize>, u32)| span.start <= bytes.start && bytes.end <= span.end;
        self.spans.iter().rev().filter(around).min_by_key(|(span, _)| span.len()).map(|(_, id)| *id)
    }

    /// Whether a mistake is in the text.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.spans.iter().any(|(_, known)| *known == id)
    }

    /// Where this byte of the new text was in the old one.
    pub(crate) fn origin(&self, byte: usize) -> usize {
        let after = self.moved.partition_point(|(new, _)| *new <= byte);
        self.moved[..after].last().map_or(0, |(new, old)| old + (byte - new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(id: u32, piece: Range<usize>, before: &str, after: &'static str) -> Mutant {
        Mutant {
            id,
            file: String::new(),
            line: 1,
            function: String::new(),
            within: 0..0,
            piece,
            before: before.to_owned(),
            after,
            was: String::new(),
            now: String::new(),
        }
    }

    #[test]
    fn mistakes_nest() {
        let all = [
            mutant(1, 1..6, "<1", "1>"),
            mutant(2, 1..6, "<2", "2>"),
            mutant(3, 1..2, "(", ")"),
            mutant(4, 5..6, "[", "]"),
            mutant(5, 1..1, "+", ""),
            mutant(6, 7..8, "{", "}"),
        ];
        let edited = apply("{a + b;c}", &all.iter().collect::<Vec<_>>());
        assert_eq!(edited.text, "{+<1<2(a) + [b]2>1>;{c}}");
    }

    #[test]
    fn a_place_in_the_new_text_is_found_again() {
        let all = [mutant(1, 1..6, "<<", ">>"), mutant(2, 1..2, "((", "))")];
        let edited = apply("{a + b;c}", &all.iter().collect::<Vec<_>>());
        assert_eq!(edited.text, "{<<((a)) + b>>;c}");
        assert_eq!(edited.around(&(5..6)), Some(2));
        assert_eq!(edited.around(&(1..3)), Some(1));
        assert_eq!(edited.around(&(11..12)), Some(1));
        assert_eq!(edited.around(&(15..16)), None);
        assert_eq!(edited.origin(15), 7);
        assert_eq!(edited.origin(5), 1);
    }
}
