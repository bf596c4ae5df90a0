//! Asking memory for what will be needed soon, without waiting for it.

/// Prefetches the place of a list's next value.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(super) fn end_of<T>(values: &[T]) {
    ask(values.as_ptr_range().end);
}

/// Prefetches a value of a list, if it has that.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(super) fn at<T>(values: &[T], at: usize) {
    values.get(at).into_iter().for_each(|value| ask(value));
}

#[inline]
#[cfg(target_arch = "x86_64")]
fn ask<T>(place: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 processor has SSE, and a prefetch touches nothing, wherever it points to.
    #[allow(unsafe_code)]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
}

/// Reads the last value, which nothing waits for, in the place of a prefetch.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn end_of<T: Copy>(values: &[T]) {
    std::hint::black_box(values.last().copied());
}

/// Reads the value, which nothing waits for, in the place of a prefetch.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn at<T: Copy>(values: &[T], at: usize) {
    std::hint::black_box(values.get(at).copied());
}
