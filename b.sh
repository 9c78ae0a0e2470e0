cd /tmp/h/S; cargo fmt -p satin-sim -p satin-runtime; nice -n 2 cargo build --release -p satin-sim 2>&1 | grep -E "^(error|warning: unus)" -A9 | head -60
