//! Functions of others: the driver's, libc's and its loader's, the unwinder's.
//!
//! | file | noun |
//! |---|---|
//! | `entry` | a hooked function of the driver, with its original |
//! | `originals` | finds the originals, and what is behind our exports |
//! | `driver` | the driver API's types, and our own calls into the driver |
//! | `libc_symbols`, `loader` | the real functions of libc, and of its loader |
//! | `mapped_images` | functions of mapped libraries, found without the loader |
//! | `failed_look_up` | `dlerror` after a look-up that must fail as it would without us |
//! | `unwind` | the unwinder's functions, so that libgcc_s is not required |

pub mod driver;
pub mod entry;
pub mod failed_look_up;
pub mod libc_symbols;
pub mod loader;
pub mod mapped_images;
pub mod originals;
mod unwind;
