module github.com/ratelimit-go/ratelimit/examples/recipes

go 1.25.0

require (
	github.com/coder/websocket v1.8.14
	github.com/go-chi/chi/v5 v5.3.0
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/labstack/echo/v4 v4.13.4
	github.com/ratelimit-go/ratelimit v0.1.0
	github.com/rs/cors v1.11.1
	github.com/stretchr/testify v1.12.1
	golang.org/x/text v0.34.0
)

require (
	github.com/labstack/gommon v0.4.2 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.48.0 // indirect
	golang.org/x/net v0.50.0 // indirect
	golang.org/x/sys v0.41.0 // indirect
)

replace github.com/ratelimit-go/ratelimit => ../../
