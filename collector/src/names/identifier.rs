//! Kernel names that are one plain word: cuBLAS's and cuDNN's XMMA names, Triton's, Inductor's.
//!
//! A short XMMA name leaves out the tuning parameters. Two names that differ only in these get marks from
//! [`crate::names::NameTable`].

/// Words of an XMMA name, and beginnings of words followed by a digit, that are left out.
const XMMA_WORDS: [&str; 5] = ["execute", "kernel", "", "cublas", "cudnn"];
const XMMA_SETTINGS: [&str; 9] =
    ["stage", "warpsize", "warpgroupsize", "cgasize", "g", "aligna", "alignb", "alignc", "tensor"];

/// A shorter form of a plain word.
pub fn identifier(name: &str) -> String {
    xmma(name).unwrap_or_else(|| name.to_owned())
}

/// `sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_…_execute_split_k_kernel__5x_cublas`
/// as `sm80_xmma_gemm_f32_nn_32x32x8_split_k`: the tile and the algorithm stay.
fn xmma(name: &str) -> Option<String> {
    let (device, rest) = name.split_once("_xmma_")?;
    let Some((what, how)) = rest.split_once("_tilesize") else {
        let kernel = name.split("__5x_").next().unwrap_or(name).trim_end_matches("_kernel");
        return Some(kernel.trim_end_matches("_execute").to_owned());
    };
    let mut out = format!("{device}_xmma");
    let mut before = "";
    let words: Vec<&str> = what.split('_').filter(|word| *word != "implicit").collect();
    for (at, word) in words.iter().enumerate() {
        // Left out: `gemm` in the name of a convolution; the layout of the result (the last letter of
        // `nn_n`), which never differs; a type that is repeated.
        let gemm = *word == "gemm" && what.contains("implicit_gemm");
        let result = at + 1 == words.len() && *word == "n";
        let word = halved(word);
        if !gemm && !result && word != before {
            out.push('_');
            out.push_str(word);
            before = word;
        }
    }
    let how = how.replace("_segment_k_off", "").replace("_segment_k_on", "_segment_k");
    let mut how = how.split('_');
    out.push('_');
    out.push_str(how.next().unwrap_or_default());
    for word in how.filter(|word| !is_tuning(word)) {
        out.push('_');
        out.push_str(word);
    }
    Some(out)
}

/// `f32f32` as `f32`.
fn halved(word: &str) -> &str {
    let (left, right) = word.split_at_checked(word.len() / 2).unwrap_or((word, ""));
    if left == right && left.len() > 1 { left } else { word }
}

/// Words that every XMMA name has; `5x` is the version of what made it.
pub fn is_filler(word: &str) -> bool {
    XMMA_WORDS.contains(&word) || word == "5x"
}

fn is_tuning(word: &str) -> bool {
    let setting = XMMA_SETTINGS.iter().any(|setting| {
        word.strip_prefix(setting).is_some_and(|value| value.starts_with(|c: char| c.is_ascii_digit()))
    });
    setting || is_filler(word)
}

/// Removes characters from the middle, if possible between words: names often differ in their ends.
pub fn cut(name: &str, most_chars: usize) -> String {
    let count = name.chars().count();
    if count <= most_chars {
        return name.to_owned();
    }
    let tail = most_chars / 3;
    let head: String = name.chars().take(most_chars - tail - 1).collect();
    let tail: String = name.chars().skip(count - tail).collect();
    // Looks for a word's end near the cut on both sides.
    const NEAR: usize = 12;
    let head = match head.rfind('_') {
        Some(at) if head.len() - at <= NEAR => &head[..=at],
        _ => &head,
    };
    let tail = match tail.find('_') {
        Some(at) if at <= NEAR => &tail[at..],
        _ => &tail,
    };
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xmma_names_say_what_is_computed() {
        for (full, expected) in [
            (
                "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_split_k_kernel__5x_cublas",
                "sm80_xmma_gemm_f32_nn_32x32x8_ffma_split_k",
            ),
            (
                "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize64x32x64_stage5_warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel__5x_cudnn",
                "sm80_xmma_fprop_tf32f32_f32_nhwckrsc_nchw_64x32x64",
            ),
            ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
            (
                "sm90_xmma_a_tilesize64x64x64_cgasize1x1x1_execute_segment_k_on_kernel__5x_cudnn",
                "sm90_xmma_a_64x64x64_segment_k",
            ),
            ("sm80_xmma_wgrad_first_layer_f16_execute_kernel__5x_cudnn", "sm80_xmma_wgrad_first_layer_f16"),
            ("_xmma__tilesize", "_xmma_"),
        ] {
            assert_eq!(identifier(full), expected);
        }
    }

    #[test]
    fn cut_falls_between_words() {
        let long = format!("triton_red_fused_{}_17", "native_layer_norm_".repeat(9));
        let name = cut(&long, 60);
        assert!(name.chars().count() <= 60, "{name}");
        assert!(
            name.starts_with("triton_red_fused_native_") && name.contains("_…_") && name.ends_with("_17"),
            "{name}"
        );
        assert_eq!(cut("short", 60), "short");
        assert_eq!(cut(&"é".repeat(80), 60).chars().count(), 60);
    }
}
