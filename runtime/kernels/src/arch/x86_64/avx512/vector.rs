//! Definitions that vectorise as they are.

use crate::arch::x86_64::stamp::stamp;
use crate::generic::mxfp4_prepared::{self, Mxfp4Group};
use crate::generic::{norm, vector};

stamp! {
    "avx512f,avx512bw,avx512dq,avx512vl,avx2";
    fn rmsnorm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = norm::rmsnorm;
    fn l2norm(v: &mut [f32]) = norm::l2norm;
    fn mxfp4_prepare(x: &[f32], prepared: &mut [Mxfp4Group]) = mxfp4_prepared::mxfp4_prepare;
    fn add(acc: &mut [f32], x: &[f32]) = vector::add;
    fn add_scaled(acc: &mut [f32], weight: f32, x: &[f32]) = vector::add_scaled;
    fn multiply(out: &mut [f32], x: &[f32]) = vector::multiply;
    fn widen_bf16(bytes: &[u8], out: &mut [f32]) = vector::widen_bf16;
}
