//! Placeholder, replaced as the part lands.
