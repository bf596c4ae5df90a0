//! Asking memory for what will be written soon, without waiting for it.

/// Prefetches the place of a list's next value.
#[inline]
#[cfg(target_arch = "x86_64")]
pub(super) fn end_of<T>(values: &[T]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let end = values.as_ptr_range().end;
    // SAFETY: every x86-64 processor has SSE, and a prefetch touches nothing, wherever it points to.
    #[allow(unsafe_code)]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(end.cast());
    }
}

/// Reads the last value, which nothing waits for, in the place of a prefetch.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn end_of<T: Copy>(values: &[T]) {
    std::hint::black_box(values.last().copied());
}
