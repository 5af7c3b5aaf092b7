# SPDX-License-Identifier: Apache-2.0
#
# recipe.sh - how prometheus and promtool are compiled: without the services of clouds, from which
# nobody here learns what to scrape. They are half of it.

compile() {
    go build -v -tags remove_all_sd -ldflags '-s -w' -o "$2" "$1"
}
