package frameworks

import (
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/echolimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

var onEcho = framework{
	name:  "echo",
	spell: colons,
	own:   map[string]string{"an encoded path": "routes by the encoded path, so it finds no route"},
	build: func(s *service) (http.Handler, error) {
		m, err := echolimit.New(s.limiter, s.echoConfig())
		if err != nil {
			return nil, err
		}
		e := echo.New()
		e.Logger = s.options.log
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			if errors.Is(err, http.ErrNoCookie) {
				_ = c.Blob(http.StatusUnauthorized, "text/plain", []byte("wrong password"))
				return
			}
			status := http.StatusInternalServerError
			if coded := echo.HTTPStatusCoder(nil); errors.As(err, &coded) {
				status = coded.StatusCode()
			}
			_ = c.NoContent(status)
		}
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // the recovery, outside of the limit
			return func(c *echo.Context) (err error) {
				defer func() {
					if recover() != nil {
						err = echo.ErrInternalServerError
					}
				}()
				return next(c)
			}
		}, m.Handler)
		echoRoutes(s, m, e)
		return e, nil
	},
}

func (s *service) echoConfig() echolimit.Config {
	o := &s.options
	c := echolimit.Config{
		Proxies: o.proxies, Info: o.info, Headers: o.headers, SkipNetworks: o.skipNetworks, ShowShared: o.shared, Log: o.log,
	}
	if o.users {
		c.Client = func(c *echo.Context) (client, tier string, ok bool) { return user(c.Request().Header.Get) }
	}
	if o.key {
		c.Client = echolimit.APIKey("X-API-Key", find)
	}
	if o.count != nil {
		c.Count = func(_ *echo.Context, status int) bool { return o.count(status) }
	}
	if o.healthy {
		c.Skip = echolimit.SkipPaths("/healthz")
	}
	if o.preflight {
		c.Skip = echolimit.Preflight
	}
	if o.pattern {
		c.Endpoint = echolimit.Pattern
	}
	if o.prepares() {
		c.Prepare = func(_ *echo.Context, q *ratelimit.Request) { o.prepare(q) }
	}
	if o.forgive {
		c.Error = func(*echo.Context, error) bool { return true }
	}
	if o.denied {
		c.Denied = func(c *echo.Context, _ *httplimit.Info) error { return c.Blob(420, "text/plain", []byte("slow down")) }
	}
	if o.blocked {
		c.Blocked = func(c *echo.Context, _ *httplimit.Info) error {
			return c.Blob(http.StatusForbidden, "text/plain", []byte("go away"))
		}
	}
	return c
}

func echoText(body string) echo.HandlerFunc {
	return func(c *echo.Context) error { return c.Blob(http.StatusOK, "text/plain", []byte(body)) }
}

func echoRoutes(s *service, m *echolimit.Middleware, e *echo.Echo) {
	e.GET("/items/:id", func(c *echo.Context) error { return echoText("item " + c.Param("id"))(c) })
	e.HEAD("/items/:id", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	e.POST("/login", func(c *echo.Context) error {
		switch c.Request().Header.Get("X-Password") {
		case "right":
			return echoText("welcome")(c)
		case "wrong":
			return c.Blob(http.StatusUnauthorized, "text/plain", []byte("wrong password"))
		}
		return http.ErrNoCookie
	})
	e.GET("/panic", func(*echo.Context) error { panic("a bug") })
	e.GET("/stream", func(c *echo.Context) error {
		_, _ = c.Response().Write([]byte("one\n"))
		_ = http.NewResponseController(c.Response()).Flush()
		<-s.release
		_, err := c.Response().Write([]byte("two\n"))
		return err
	})
	e.GET("/slow", func(c *echo.Context) error {
		s.running <- struct{}{}
		<-s.release
		return echoText("done")(c)
	})
	e.GET("/empty", func(*echo.Context) error { return nil })
	e.GET("/info", func(c *echo.Context) error { return echoText(infoText(echolimit.Info(c)))(c) })
	e.GET("/mail", func(c *echo.Context) error {
		if ok, err := m.Allow(c, mail); !ok {
			return err
		}
		return echoText("sent")(c)
	})
	e.GET("/job", func(c *echo.Context) error {
		units, ok, err := m.Reserve(c, job, time.Minute)
		if !ok {
			return err
		}
		_ = units.Settle(1)
		return echoText("worked")(c)
	})
	e.GET("/healthz", echoText("healthy"))
	e.GET("/twice", echoText("twice"), m.Handler)
}
