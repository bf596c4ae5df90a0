//! A column of values by place, in pages that exist only where there is something.
//!
//! Pages are of one size, so that no growth ever copies what is there, and a page that nobody needs
//! any more gives its memory back, or is used again for others.

/// Values by place.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Vec<Option<Page<T>>>,
}

/// The values of [`PAGE`] neighbours.
pub(super) type Page<T> = Box<[T]>;

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T: Default> Pages<T> {
    /// The value at a place, if its page exists.
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.page(page_of(at))?.get(local(at))
    }

    /// The value at a place, to be changed, if its page exists.
    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.pages.get_mut(page_of(at))?.as_mut()?.get_mut(local(at))
    }

    /// The value at a place; where there is no page yet, `fresh` makes it.
    pub(super) fn make(&mut self, at: u32, fresh: impl FnOnce() -> Page<T>) -> Option<&mut T> {
        let page = page_of(at);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        self.pages.get_mut(page)?.get_or_insert_with(fresh).get_mut(local(at))
    }

    /// A page, if it exists.
    pub(super) fn page(&self, page: usize) -> Option<&[T]> {
        self.pages.get(page)?.as_deref()
    }

    /// Takes a page out.
    pub(super) fn take(&mut self, page: usize) -> Option<Page<T>> {
        self.pages.get_mut(page)?.take()
    }

    /// Puts a page in.
    pub(super) fn put(&mut self, page: usize, values: Page<T>) {
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        if let Some(slot) = self.pages.get_mut(page) {
            *slot = Some(values);
        }
    }

    /// How far pages reach.
    pub(super) fn reach(&self) -> usize {
        self.pages.len()
    }
}

/// A page in which nothing has happened.
pub(super) fn blank<T: Default>() -> Page<T> {
    (0..PAGE).map(|_| T::default()).collect()
}

/// The page of a place.
pub(super) const fn page_of(at: u32) -> usize {
    at as usize / PAGE
}

/// Where in its page a place is.
pub(super) const fn local(at: u32) -> usize {
    at as usize % PAGE
}

/// A place of a page.
#[allow(clippy::cast_possible_truncation)] // Pages are made of places, which are 32-bit numbers.
pub(super) const fn place(page: usize, local: usize) -> u32 {
    (page * PAGE + local) as u32
}

/// The places of a page.
pub(super) fn places_of(page: usize) -> impl Iterator<Item = u32> {
    (0..PAGE).map(move |local| place(page, local))
}

/// So many that a page is worked on in some tens of microseconds, and that few are enough for a
/// million series.
pub(super) const PAGE: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_exist_where_something_is() {
        let mut column = Pages::<u8>::default();
        assert_eq!((column.get(7), column.reach()), (None, 0));
        let far = places_of(2).nth(3).unwrap();
        *column.make(far, blank).unwrap() = 9;
        assert_eq!(
            (column.get(far), column.get(far + 1), column.get(0)),
            (Some(&9), Some(&0), None)
        );
        assert_eq!((page_of(far), local(far), column.reach()), (2, 3, 3));
        let page = column.take(2).unwrap();
        assert_eq!((column.get(far), page[3]), (None, 9));
        column.put(5, page);
        assert_eq!(column.page(5).map(|page| page[3]), Some(9));
    }
}
